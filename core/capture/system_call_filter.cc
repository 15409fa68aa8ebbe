#include "core/capture/system_call_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace scriptorium {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_PPC64LE;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_RISCV64;
#else
#error "name this machine's AUDIT_ARCH_... here"
#endif

constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

constexpr auto kDenied = std::to_array<std::uint32_t>({
    // What the spool opener does with its rights.
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_open_by_handle_at,
// Other processes, of the same user too. LeakSanitizer traces itself.
#if !defined(__SANITIZE_ADDRESS__)
    SYS_ptrace,
#endif
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_getfd,
    SYS_kcmp,
    // Other mounts and namespaces.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    // The kernel. What is done by way of io_uring passes no filter.
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
});

// Instructions as the macros of <linux/filter.h> make them, without their casts.
constexpr sock_filter load(std::size_t offset) {
  return {
      .code = BPF_LD | BPF_W | BPF_ABS, .jt = 0, .jf = 0, .k = static_cast<std::uint32_t>(offset)};
}
constexpr sock_filter answer(std::uint32_t what) {
  return {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = what};
}
// Skips one instruction if the comparison holds, or if it does not.
constexpr sock_filter skip_if(std::uint16_t comparison, std::uint32_t with) {
  return {.code = static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K),
          .jt = 1,
          .jf = 0,
          .k = with};
}
constexpr sock_filter skip_unless(std::uint16_t comparison, std::uint32_t with) {
  return {.code = static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K),
          .jt = 0,
          .jf = 1,
          .k = with};
}

}  // namespace

Result<void> deny_privileged_system_calls() {
  std::vector<sock_filter> program{
      // The numbers mean something else to a program of another architecture, as 32-bit ones are.
      load(offsetof(seccomp_data, arch)),
      skip_if(BPF_JEQ, kArchitecture),
      answer(kRefuse),
      load(offsetof(seccomp_data, nr)),
#if defined(__x86_64__)
      // x32 has each call under a second number.
      skip_unless(BPF_JGE, 0x40000000),
      answer(kRefuse),
#endif
  };
  for (const std::uint32_t number : kDenied) {
    program.push_back(skip_unless(BPF_JEQ, number));
    program.push_back(answer(kRefuse));
  }
  program.push_back(answer(SECCOMP_RET_ALLOW));
  const sock_fprog whole{.len = static_cast<unsigned short>(program.size()),
                         .filter = program.data()};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole, 0, 0) != 0) {
    return Error{ErrorKind::kTransient, system_error("prctl PR_SET_SECCOMP", errno).message()};
  }
  return {};
}

}  // namespace scriptorium
