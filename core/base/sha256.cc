#include "core/base/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <new>

#include "core/base/text.h"

namespace scriptorium {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(md); }
};

namespace {

// Looked up once: EVP_sha256() makes OpenSSL 3 search its providers again for each message.
const EVP_MD* sha256_method() {
  static const EVP_MD* const method = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return method;
}

}  // namespace

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  // This fails only when memory is exhausted, and then nothing can continue.
  if (context_->md == nullptr || EVP_DigestInit_ex(context_->md, sha256_method(), nullptr) != 1)
    throw std::bad_alloc();
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::string_view bytes) {
  EVP_DigestUpdate(context_->md, bytes.data(), bytes.size());
}

std::string Sha256::finish_hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_->md, digest.data(), &size);
  return hex_encode({reinterpret_cast<const char*>(digest.data()), size});
}

std::string sha256_hex(std::string_view bytes) {
  struct Free {
    void operator()(EVP_MD_CTX* md) const noexcept { EVP_MD_CTX_free(md); }
  };
  // Making and freeing a context takes as long as hashing 500 bytes.
  thread_local const std::unique_ptr<EVP_MD_CTX, Free> md(EVP_MD_CTX_new());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  // This fails only when memory is exhausted, and then nothing can continue.
  if (md == nullptr || EVP_DigestInit_ex(md.get(), sha256_method(), nullptr) != 1 ||
      EVP_DigestUpdate(md.get(), bytes.data(), bytes.size()) != 1 ||
      EVP_DigestFinal_ex(md.get(), digest.data(), &size) != 1)
    throw std::bad_alloc();
  return hex_encode({reinterpret_cast<const char*>(digest.data()), size});
}

std::string hmac_sha256_hex(std::string_view key, std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  // This fails only when memory is exhausted, and then nothing can continue.
  if (HMAC(sha256_method(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data(),
           &size) == nullptr)
    throw std::bad_alloc();
  return hex_encode({reinterpret_cast<const char*>(digest.data()), size});
}

}  // namespace scriptorium
