#include "backends/catalog/config.h"

#include "core/api/kit/path_option.h"

namespace scriptorium::catalog {
namespace {

const Schema<CatalogConfig>& catalog_schema() {
  static const Schema<CatalogConfig> kSchema{
      option("root", &CatalogConfig::root,
             "absolute path of the catalog's directory; created with mode 0750 if only its last "
             "part is missing"),
      option("reader_group", &CatalogConfig::reader_group,
             "group, by name or gid, that may read the whole catalog: support staff and the query "
             "service; the daemon's user must be a member"),
      integer("min_free_bytes", &CatalogConfig::min_free_bytes, 0, std::int64_t{1} << 50,
              "bytes to leave free on root's file system, for the journal and the scheduler if "
              "they share it; with less, events wait in the journal"),
      integer("segment_jobs", &CatalogConfig::segment_jobs, 1, 100'000'000,
              "jobs in one segment (one database file) before the next begins; a quarter of a "
              "year also ends one"),
  };
  return kSchema;
}

}  // namespace

std::vector<OptionInfo> options() { return catalog_schema().options(); }

CatalogConfig parse_config(const Table& table, Problems& problems) {
  CatalogConfig config = catalog_schema().parse(table, problems);
  if (table.find("root") != nullptr) check_absolute_path(table, "root", problems);
  drop_final_slashes(config.root);
  return config;
}

}  // namespace scriptorium::catalog
