#include "core/api/kit/descriptor.h"
#include "schedulers/replay/source.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::spool_adapter_plugin<scriptorium::replay::ReplaySource,
                                      &scriptorium::replay::describe,
                                      &scriptorium::replay::read_config>(
        "replay", "job scripts from a folder of recorded entries");
