#include "backends/file/config.h"
#include "backends/file/sink.h"
#include "core/api/kit/descriptor.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::sink_plugin<scriptorium::file::FileSink, &scriptorium::file::options,
                             &scriptorium::file::parse_config>(
        "file",
        "a tree of files with the script, environment and metadata of each job, readable by its "
        "owner");
