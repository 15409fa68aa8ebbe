#include "core/api/kit/descriptor.h"
#include "schedulers/usage/config.h"
#include "schedulers/usage/source.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::free_source_plugin<scriptorium::usage::UsageSource, &scriptorium::usage::describe,
                                    &scriptorium::usage::read_config>(
        "usage",
        "what each job really used: CPU, memory, I/O and GPUs, from control groups on its nodes or "
        "from sacct");
