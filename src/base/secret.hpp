#pragma once
// Secrets, digests and their text forms.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tamaki {

inline constexpr std::size_t kSecretBytes = 32;
using Secret = std::array<std::byte, kSecretBytes>;

/// A fresh secret of the system's random generator.
Secret random_secret();
/// The secret that a text stands for, different for each `label`. As hard to guess as the text is.
Secret derive_secret(std::string_view text, std::string_view label);
/// The same from another secret: what is proved with one of them is worthless for the other.
Secret derive_secret(std::span<const std::byte> secret, std::string_view label);
/// 64-bit digest; equal input, equal output, on all hosts.
std::uint64_t digest_of(std::string_view text);
std::uint64_t random_number();
/// Wipes memory in a way that the compiler does not remove.
void wipe(std::span<std::byte> memory);
/// Lower-case hexadecimal text and back; false if `text` is not exactly 2 * bytes.size() such digits.
std::string to_hex(std::span<const std::byte> bytes);
bool from_hex(std::string_view text, std::span<std::byte> bytes);

}  // namespace tamaki
