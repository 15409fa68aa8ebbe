#include "tests/core/redact/ordinary_scripts.h"

#include <array>
#include <fstream>
#include <functional>
#include <random>
#include <string_view>
#include <utility>

namespace scriptorium::redact {
namespace {

// std::uniform_int_distribution gives other numbers with another library; the engine does not.
class Dice {
 public:
  std::size_t below(std::size_t limit) { return engine_() % limit; }
  std::string from(std::string_view alphabet, std::size_t length) {
    std::string result;
    while (result.size() < length) result += alphabet[below(alphabet.size())];
    return result;
  }
  template <std::size_t N>
  std::string one_of(const std::array<std::string_view, N>& choices) {
    return std::string(choices[below(N)]);
  }

 private:
  std::mt19937 engine_{17};
};

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::array<std::string_view, 8> kUsers = {"jdoe",  "anna",   "u0423",    "s1234567",
                                                    "bob.k", "ma9531", "hpc_user", "zhang"};
constexpr std::array<std::string_view, 16> kWords = {
    "ribosome", "climate", "passat", "keynote",  "token",   "secretome", "monkeypox", "author",
    "turkey",   "compass", "bypass", "baseline", "session", "vae",       "passenger", "credence"};

std::string uuid(Dice& dice) {
  return dice.from(kHex, 8) + "-" + dice.from(kHex, 4) + "-4" + dice.from(kHex, 3) + "-a" +
         dice.from(kHex, 3) + "-" + dice.from(kHex, 12);
}

std::string vary(std::string text, Dice& dice) {
  const std::array<std::pair<std::string_view, std::function<std::string()>>, 8> words = {{
      {"@user@", [&] { return dice.one_of(kUsers); }},
      {"@word@", [&] { return dice.one_of(kWords); }},
      {"@n@", [&] { return std::to_string(1 + dice.below(999)); }},
      {"@hex32@", [&] { return dice.from(kHex, 32); }},
      {"@hex40@", [&] { return dice.from(kHex, 40); }},
      {"@hex64@", [&] { return dice.from(kHex, 64); }},
      {"@uuid@", [&] { return uuid(dice); }},
      {"@b64@", [&] { return dice.from(kBase64, 76); }},
  }};
  for (const auto& [word, make] : words) {
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      const std::string made = make();
      text.replace(at, word.size(), made);
      at += made.size();
    }
  }
  return text;
}

std::vector<std::string> read_parts(const std::filesystem::path& file) {
  std::vector<std::string> parts(1);
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("##")) continue;
    if (!line.empty())
      parts.back() += line + "\n";
    else if (!parts.back().empty())
      parts.emplace_back();
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

constexpr std::array<std::string_view, 5> kHeads = {
    "#!/bin/bash\n#SBATCH --job-name=@word@\n#SBATCH -p batch -A acct@n@\n#SBATCH --time=@n@\n"
    "#SBATCH --output=/scratch/@user@/log/%x-%j.out\n#SBATCH --mail-user=@user@@example.org\n",
    "#!/bin/bash -l\n#SBATCH -N 2 -n 64 --gres=gpu:4\n#SBATCH --export=ALL,SEED=@n@\n",
    "#!/bin/sh\n#PBS -N @word@\n#PBS -P project@n@\n#PBS -l select=1:ncpus=8:mem=32gb\n"
    "#PBS -v INPUT=@word@.dat,KEY=@n@\ncd $PBS_O_WORKDIR\n",
    "#!/bin/bash\n#$ -N @word@\n#$ -pe smp 8\n#$ -P acct@n@\n#$ -v SEED=@n@\n#$ -cwd\n",
    "#!/bin/bash\n#OAR -n @word@\n#OAR -l nodes=2/core=16,walltime=@n@:00:00\n#OAR -p gpu='YES'\n",
};

}  // namespace

std::vector<std::string> ordinary_scripts(const std::filesystem::path& parts, std::size_t count) {
  const std::vector<std::string> all = read_parts(parts);
  std::vector<std::string> scripts;
  if (all.empty()) return scripts;
  Dice dice;
  while (scripts.size() < count) {
    std::string script = vary(dice.one_of(kHeads), dice);
    for (std::size_t left = 6 + dice.below(20); left > 0; --left)
      script += vary(all[dice.below(all.size())], dice);
    scripts.push_back(std::move(script));
  }
  return scripts;
}

}  // namespace scriptorium::redact
