#include "checkpoint/config.h"

#include "core/config/config.h"
#include "core/config/toml_reader.h"

namespace scriptorium::checkpoint {
namespace {

const Schema<Config>& schema() {
  static const Schema<Config> schema{
      option("spool", &Config::spool, "folder into which job scripts write their requests"),
      option("criu", &Config::criu,
             "the program; empty: in /usr/sbin, /usr/local/sbin, /usr/bin or /usr/local/bin"),
      integer("max_image_bytes", &Config::max_image_bytes, 1 << 20, std::int64_t{1} << 50,
              "a program that needs more is not saved"),
      integer("time_limit_seconds", &Config::time_limit_seconds, 1, 86400,
              "how long one request may take"),
      integer("dumps_at_a_time", &Config::dumps_at_a_time, 1, 64, "other requests wait"),
      integer("generations", &Config::generations, 1, 9,
              "images kept in a job's directory, the newest included"),
      integer("requests_per_minute", &Config::requests_per_minute, 1, 10000,
              "of one user; further ones wait"),
      option("records", &Config::records,
             "folder for what the archiving daemon keeps of this; empty: nothing is written"),
      option("records_group", &Config::records_group,
             "group of the archiving daemon; where it does not exist, nothing is written"),
  };
  return schema;
}

}  // namespace

Config parse_config(std::string_view text, const std::string& file, Problems& problems) {
  const Table table = read_toml(text, file, problems).table;
  check_unknown_keys(table, schema().options(), problems);
  Config config = schema().parse(table, problems);
  for (const auto& [key, path] :
       {std::pair{"spool", &config.spool}, {"criu", &config.criu}, {"records", &config.records}}) {
    if (!path->empty() && !path->starts_with('/'))
      problems.add(table, key, "not an absolute path", "a path that begins with /");
  }
  if (config.spool.empty())
    problems.add(table, "spool", "not an absolute path", "a path that begins with /");
  return config;
}

}  // namespace scriptorium::checkpoint
