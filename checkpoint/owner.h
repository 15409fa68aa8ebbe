#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/accounts.h"
#include "core/base/result.h"

// Becoming the owner of a job, in a process that was forked for one request. Everything below the
// user's directory is done after this, so that no link and no image can reach what its owner
// cannot. Threads: the process has one.
namespace scriptorium::checkpoint {

enum class EngineUse : std::uint8_t { kDump, kRestore };

// Pure: the capabilities that criu needs: CAP_CHECKPOINT_RESTORE and CAP_SETPCAP, and for a dump
// CAP_SYS_PTRACE where Yama restricts ptrace (`ptrace_scope`, the text of its file; "" = no Yama).
// Never for a restore: an image says which capabilities its process keeps, a user can write it, and
// with that one it could reach every process of the node.
std::vector<int> engine_capabilities(EngineUse use, std::string_view ptrace_scope);

// For good: all user and group ids, no new privileges, and no capability but those of the engine.
// These stay permitted, for allow_engine().
Result<void> become_owner(const UserRecord& user, EngineUse use);

// The program that this process executes next has the engine's capabilities. Call it in a child.
Result<void> allow_engine();

// Gives the engine's capabilities up as well, for good.
Result<void> drop_capabilities();

}  // namespace scriptorium::checkpoint
