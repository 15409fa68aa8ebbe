#include "core/api/kit/descriptor.h"
#include "schedulers/slurm/config.h"
#include "schedulers/slurm/source.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::spool_adapter_plugin<scriptorium::slurm::SlurmSource,
                                      &scriptorium::slurm::describe,
                                      &scriptorium::slurm::read_config>(
        "slurm", "job scripts from slurmctld's spool, owners from squeue");
