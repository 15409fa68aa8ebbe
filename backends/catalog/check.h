#pragma once

#include <cstdint>
#include <string>

#include "backends/catalog/segments.h"
#include "core/api/maintained_sink.h"

namespace scriptorium::catalog {

// Reads all of a segment and compares it with what it was made from: each block and each list of
// it, each content with the sizes and hashes in its event's record, each row with its events, the
// word index with the scripts, lists and sums with the rows. Beside a running daemon: each
// comparison sees one state, and none lasts so long that -wal grows much.
//
// `families` is catalog.db. Adds to the report: findings, "jobs", "blocks", "contents", "bytes".
void check_segment(const std::string& root, const SegmentInfo& segment, Connection& families,
                   const MaintainedSink::Control& control, MaintainedSink::Report& report);

}  // namespace scriptorium::catalog
