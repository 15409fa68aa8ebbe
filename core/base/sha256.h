#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace scriptorium {

// SHA-256 by OpenSSL. One object hashes one message; not shared between threads.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::string_view bytes);
  std::string
  finish_hex();  // 64 lower-case hexadecimal digits; the object must not be used afterwards

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_hex(std::string_view bytes);

// HMAC-SHA256 (RFC 2104) of the bytes, as 64 lower-case hexadecimal digits.
std::string hmac_sha256_hex(std::string_view key, std::string_view bytes);

}  // namespace scriptorium
