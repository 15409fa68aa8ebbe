#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace scriptorium::redact {

// Job scripts as users write them, without a secret in any: a scheduler's directives, then parts
// of a file in random order (parts are separated by empty lines; lines that begin with "##" are
// comments). In a part, these words vary: @user@ @word@ @n@ @hex32@ @hex40@ @hex64@ @uuid@ @b64@.
// The same file and count give the same scripts on every machine. No script at all if the file
// cannot be read.
std::vector<std::string> ordinary_scripts(const std::filesystem::path& parts, std::size_t count);

}  // namespace scriptorium::redact
