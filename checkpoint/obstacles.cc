#include "checkpoint/obstacles.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "checkpoint/folder.h"
#include "core/base/ascii.h"
#include "core/base/file.h"
#include "core/base/number.h"

namespace scriptorium::checkpoint {
namespace {

// criu copies deleted files up to this size into the image (--ghost-limit).
constexpr std::int64_t kMostDeletedBytes = 1 << 20;

tl::unexpected<Refusal> obstacle(std::string reason, std::string detail) {
  return tl::unexpected(Refusal{std::move(reason), std::move(detail)});
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (!line.empty()) {
    const std::string_view field = take_until(line, ' ');
    if (!field.empty()) fields.push_back(field);
  }
  return fields;
}

std::string link_target(const std::string& link) {
  std::string target(4096, '\0');
  const ssize_t got = ::readlink(link.c_str(), target.data(), target.size());
  target.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return target;
}

// Memory's devices (null, zero, random) and terminals; those of real hardware cannot be saved.
bool is_harmless_device(const struct stat& file) {
  constexpr unsigned kMemory = 1;
  constexpr unsigned kTty = 5;
  constexpr unsigned kFirstPts = 136;
  constexpr unsigned kLastPts = 143;
  const unsigned number = major(file.st_rdev);
  return S_ISCHR(file.st_mode) &&
         (number == kMemory || number == kTty || (number >= kFirstPts && number <= kLastPts));
}

// As NLMSG_OK, which compares numbers of different signs.
bool is_whole(const nlmsghdr* header, int left) {
  return left >= static_cast<int>(sizeof *header) && header->nlmsg_len >= sizeof *header &&
         header->nlmsg_len <= static_cast<std::uint32_t>(left);
}

// The peers of all Unix sockets of this network namespace, as sock_diag(7) has them; /proc/net/unix
// does not.
std::map<std::uint64_t, std::uint64_t> unix_peers() {
  std::map<std::uint64_t, std::uint64_t> peers;
  const UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct Question {
    nlmsghdr header;
    unix_diag_req request;
  } question{};
  question.header = {.nlmsg_len = sizeof question,
                     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                     .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP};
  question.request.sdiag_family = AF_UNIX;
  question.request.udiag_states = ~0U;
  question.request.udiag_show = UDIAG_SHOW_PEER;
  if (!netlink || ::send(netlink.get(), &question, sizeof question, 0) < 0) return peers;
  alignas(nlmsghdr) std::array<char, 64U << 10> buffer;  // NOLINT: filled by recv()
  while (true) {
    auto left = static_cast<int>(::recv(netlink.get(), buffer.data(), buffer.size(), 0));
    if (left <= 0) return peers;
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); is_whole(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return peers;
      const auto* found = static_cast<unix_diag_msg*>(NLMSG_DATA(header));
      auto bytes = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof *found));
      for (auto* attribute = reinterpret_cast<const rtattr*>(found + 1); RTA_OK(attribute, bytes);
           attribute = RTA_NEXT(attribute, bytes)) {
        if (attribute->rta_type == UNIX_DIAG_PEER)
          peers[found->udiag_ino] = *static_cast<const std::uint32_t*>(RTA_DATA(attribute));
      }
    }
  }
}

// What a process has open, and its working directory.
class OpenFiles {
 public:
  Outcome<void> add(const std::string& link) {
    struct stat file{};
    struct statfs system{};
    if (::stat(link.c_str(), &file) != 0) return {};  // closed meanwhile
    if (S_ISSOCK(file.st_mode)) {
      sockets_.insert(file.st_ino);
    } else if ((S_ISCHR(file.st_mode) || S_ISBLK(file.st_mode)) && !is_harmless_device(file)) {
      return obstacle("device", "the program uses the device " + link_target(link));
    } else if (S_ISREG(file.st_mode) && file.st_nlink == 0 && file.st_size > kMostDeletedBytes) {
      return obstacle("deleted_file",
                      "the program uses a large file that was deleted: " + link_target(link));
    } else if ((S_ISREG(file.st_mode) || S_ISDIR(file.st_mode)) &&
               ::statfs(link.c_str(), &system) == 0 &&
               !is_shared_file_system(static_cast<std::uint64_t>(system.f_type)) &&
               node_only_.empty()) {
      node_only_ = link_target(link) + " is on a file system that other nodes do not have";
    }
    return {};
  }
  const std::set<std::uint64_t>& sockets() const noexcept { return sockets_; }
  const std::string& node_only() const noexcept { return node_only_; }

 private:
  std::set<std::uint64_t> sockets_;
  std::string node_only_;
};

}  // namespace

std::set<std::uint64_t> connected_tcp(std::string_view text) {
  constexpr std::string_view kListening = "0A";
  std::set<std::uint64_t> inodes;
  take_until(text, '\n');  // the heading
  while (!text.empty()) {
    const auto fields = fields_of(take_until(text, '\n'));
    if (fields.size() < 10 || fields[3] == kListening) continue;
    if (const auto inode = parse_number<std::uint64_t>(fields[9])) inodes.insert(*inode);
  }
  return inodes;
}

bool holds_lock(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (take_until(line, '\t') != "lock:") continue;
    const auto fields = fields_of(line);
    // A lease or a delegation is not a lock.
    if (fields.size() > 1 &&
        (fields[1] == "FLOCK" || fields[1] == "POSIX" || fields[1] == "OFDLCK"))
      return true;
  }
  return false;
}

std::optional<std::uint64_t> outside_peer(const std::set<std::uint64_t>& sockets,
                                          const std::map<std::uint64_t, std::uint64_t>& peers) {
  for (const std::uint64_t socket : sockets) {
    const auto peer = peers.find(socket);
    if (peer != peers.end() && !sockets.contains(peer->second)) return socket;
  }
  return std::nullopt;
}

bool is_shared_file_system(std::uint64_t type) noexcept {
  constexpr std::array<std::uint64_t, 14> kShared{
      0x6969,      // NFS
      0x0BD00BD0,  // Lustre
      0x19830326,  // BeeGFS
      0x47504653,  // GPFS
      0x00C36400,  // Ceph
      0xFE534D42,  // SMB 2
      0xFF534D42,  // CIFS
      0x5346414F,  // AFS
      0x65735546,  // FUSE, as GlusterFS
      0xAAD7AAEA,  // PanFS
      0x01021997,  // 9P
      0x01161970,  // GFS2
      0x7461636F,  // OCFS2
      0x20030528,  // OrangeFS
  };
  // The field is signed and of 32 bits on some machines.
  return std::ranges::find(kShared, type & 0xFFFFFFFFU) != kShared.end();
}

Outcome<std::string> find_obstacles(const std::vector<Process>& tree, int directory) {
  OpenFiles files;
  std::set<std::uint64_t> tcp;
  for (const Process& process : tree) {
    const std::string folder = "/proc/" + std::to_string(process.pid);
    const UniqueFd list(::open((folder + "/fd").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto names = names_in(list.get());
    if (!names && !has_ended(process)) {
      return obstacle("refused",
                      "what process " + std::to_string(process.pid) + " has open cannot be seen");
    }
    if (!names) continue;
    for (const std::string& name : *names) {
      if (auto added = files.add(folder + "/fd/" + name); !added)
        return tl::unexpected(added.error());
      if (holds_lock(read_proc(folder + "/fdinfo/" + name)))
        return obstacle("flock", "the program holds a file lock");
    }
    if (auto added = files.add(folder + "/cwd"); !added) return tl::unexpected(added.error());
  }
  if (!files.sockets().empty()) {
    const std::string net = "/proc/" + std::to_string(tree.front().pid) + "/net/";
    for (const char* table : {"tcp", "tcp6"}) tcp.merge(connected_tcp(read_proc(net + table)));
    for (const std::uint64_t socket : files.sockets()) {
      if (tcp.contains(socket)) return obstacle("tcp", "the program has a TCP connection");
    }
    if (outside_peer(files.sockets(), unix_peers())) {
      return obstacle("external_socket",
                      "the program is connected to a process that is not saved with it");
    }
  }
  if (auto added = files.add("/proc/self/fd/" + std::to_string(directory)); !added)
    return tl::unexpected(added.error());
  return files.node_only();
}

}  // namespace scriptorium::checkpoint
