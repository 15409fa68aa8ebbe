#include "core/api/kit/descriptor.h"
#include "schedulers/torque/config.h"
#include "schedulers/torque/source.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::spool_adapter_plugin<scriptorium::torque::TorqueSource,
                                      &scriptorium::torque::describe,
                                      &scriptorium::torque::read_config>(
        "torque", "job scripts and owners from Torque's server spool");
