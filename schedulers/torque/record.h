#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What pbs_server writes about a job: an XML text since 4.5, a dump of its structures before. Pure
// functions over any bytes: every length is bounded by the file, the time is linear in it, and no
// entity, document type or address is ever followed.
namespace scriptorium::torque {

inline constexpr std::size_t kMaxJobId = 1047;  // bytes; PBS_MAXSVRJOBID

struct Attribute {
  std::string name;      // "Resource_List"
  std::string resource;  // "qos"; "" = the attribute has no parts
  std::string value;     // any bytes
};

struct Record {
  enum class Format { kXml, kBinary };
  Format format = Format::kXml;
  std::string job_id;       // "123.server.dom", "123[].server.dom"
  std::string file_prefix;  // the stem of the file names; "" = not given
  std::vector<Attribute> attributes;
  // The structure is what pbs_server writes, to the last byte. Only then can nobody have put an
  // attribute into another one's value, and only then is the owner believed.
  bool regular = true;

  // The first of this name; null if there is none.
  const std::string* find(std::string_view name, std::string_view resource = {}) const noexcept;
  std::size_t count(std::string_view name) const noexcept;
};

// Nothing if the bytes are no record, or not all of one. What is odd inside a whole one is read as
// far as it can be, and makes it irregular.
std::optional<Record> read_record(std::string_view bytes);

// `Variable_List` as NUL-ended strings. The server joins "NAME=value" by commas (by newlines in the
// binary record) and quotes nothing, so a value that holds the separator and then something like
// "X=" is cut there: a guess, and no more.
std::string guess_environment(std::string_view variable_list, Record::Format format);

}  // namespace scriptorium::torque
