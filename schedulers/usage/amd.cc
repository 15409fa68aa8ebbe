#include <algorithm>
#include <utility>

#include "core/base/number.h"
#include "schedulers/usage/counters.h"
#include "schedulers/usage/gpu.h"

// AMD's cards by the files of their driver; no library is needed.
namespace scriptorium::usage {
namespace {

std::optional<std::uint32_t> card_number(std::string_view name) {
  if (!name.starts_with("card")) return std::nullopt;  // "card0-DP-1" is a connector
  name.remove_prefix(4);
  return parse_number<std::uint32_t>(name);
}

std::string line_of(Files& files, const std::string& path) {
  std::string text;
  static_cast<void>(read_text(files, path, text, 4096));
  text.resize(std::min(text.size(), text.find('\n')));
  return text;
}

class AmdReader final : public GpuReader {
 public:
  AmdReader(const std::string& sys, Files& files) : files_(files) {
    std::vector<DirectoryEntry> cards;
    static_cast<void>(files.list(sys + "/class/drm", cards));
    std::vector<std::pair<std::uint32_t, std::string>> found;
    for (const DirectoryEntry& card : cards) {
      const auto number = card_number(card.name);
      const std::string path = sys + "/class/drm/" + card.name + "/device";
      Identity there;
      if (number && files.identify(path + "/gpu_busy_percent", there) == 0)
        found.emplace_back(*number, path);
    }
    std::sort(found.begin(), found.end());
    for (const auto& [number, path] : found) {
      GpuDevice device;
      // ROCm counts AMD's GPUs alone, from 0 up, whatever other cards there are.
      device.index = static_cast<std::uint32_t>(devices_.size());
      device.id = line_of(files, path + "/unique_id");
      if (device.id.empty()) device.id = "card" + std::to_string(number);
      device.model = line_of(files, path + "/product_name");
      devices_.push_back(std::move(device));
      Card card{path, {}};
      for (const DirectoryEntry& sensor : list_directories(files, path + "/hwmon")) {
        for (const char* name : {"/power1_average", "/power1_input"}) {
          const std::string power = path + "/hwmon/" + sensor.name + name;
          Identity there;
          if (card.power.empty() && files.identify(power, there) == 0) card.power = power;
        }
      }
      cards_.push_back(std::move(card));
    }
  }

  Method method() const noexcept override { return Method::kAmd; }
  const std::vector<GpuDevice>& devices() const noexcept override { return devices_; }

  GpuReading read(std::size_t device) override {
    const Card& card = cards_.at(device);
    GpuReading reading;
    if (const auto percent = number(card.path + "/gpu_busy_percent")) {
      reading.utilization_ratio = static_cast<double>(std::min<std::uint64_t>(*percent, 100)) / 100;
    }
    reading.memory_used_bytes = number(card.path + "/mem_info_vram_used");
    reading.memory_limit_bytes = number(card.path + "/mem_info_vram_total");
    if (!card.power.empty()) {
      if (const auto microwatts = number(card.power))
        reading.power_watts = static_cast<double>(*microwatts) * 1e-6;
    }
    return reading;
  }

 private:
  struct Card {
    std::string path;
    std::string power;
  };

  std::optional<std::uint64_t> number(const std::string& path) const {
    std::string text;
    if (read_text(files_, path, text, 4096) < 0) return std::nullopt;
    return whole_number(text);
  }

  Files& files_;
  std::vector<GpuDevice> devices_;
  std::vector<Card> cards_;
};

}  // namespace

std::unique_ptr<GpuReader> open_amd(const std::string& sys, Files& files) {
  auto reader = std::make_unique<AmdReader>(sys, files);
  if (reader->devices().empty()) return nullptr;
  return reader;
}

}  // namespace scriptorium::usage
