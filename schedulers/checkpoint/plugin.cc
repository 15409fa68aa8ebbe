#include "core/api/kit/descriptor.h"
#include "schedulers/checkpoint/source.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::free_source_plugin<scriptorium::checkpoint_records::RecordsSource,
                                    &scriptorium::checkpoint_records::describe,
                                    &scriptorium::checkpoint_records::read_config>(
        "checkpoint", "what scriptorium-checkpointd of this node did for jobs");
