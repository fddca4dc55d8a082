// Bytes that belong to somebody else, in the shape of rocksdb::Slice.
#ifndef STRATAKV_SLICE_H
#define STRATAKV_SLICE_H

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace stratakv {

// A pointer and a length. What it points to must outlive it.
class Slice {
public:
    Slice() : data_(""), size_(0) {}
    // Nowhere with no bytes is the empty slice: to the C library NULL means "no bound".
    Slice(const char *data, size_t size) : data_(data == nullptr ? "" : data), size_(size) {}
    Slice(const std::string &text) : data_(text.data()), size_(text.size()) {}
    Slice(std::string_view text) : Slice(text.data(), text.size()) {}
    Slice(const char *text) : data_(text == nullptr ? "" : text), size_(text == nullptr ? 0 : std::strlen(text)) {}

    const char *data() const { return data_; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    // `index` must be below size(), as with RocksDB.
    char operator[](size_t index) const { return data_[index]; }
    const char *begin() const { return data_; }
    const char *end() const { return data_ + size_; }

    void clear() { *this = Slice(); }
    // Leaves out the first `count` bytes, or all if there are fewer.
    void remove_prefix(size_t count) {
        count = count < size_ ? count : size_;
        data_ += count;
        size_ -= count;
    }
    // Leaves out the last `count` bytes, or all if there are fewer.
    void remove_suffix(size_t count) { size_ -= count < size_ ? count : size_; }

    // A copy; in capital hexadecimal digits if asked for.
    std::string ToString(bool hex = false) const {
        if (!hex) {
            return std::string(data_, size_);
        }
        static const char digits[] = "0123456789ABCDEF";
        std::string text;
        text.reserve(2 * size_);
        for (unsigned char byte : ToStringView()) {
            text.push_back(digits[byte >> 4]);
            text.push_back(digits[byte & 15]);
        }
        return text;
    }
    std::string_view ToStringView() const { return std::string_view(data_, size_); }

    // Below 0, 0 or above 0, in the order of unsigned bytes: the order of a store.
    int compare(const Slice &other) const { return ToStringView().compare(other.ToStringView()); }
    bool starts_with(const Slice &prefix) const {
        return ToStringView().substr(0, prefix.size()) == prefix.ToStringView();
    }
    bool ends_with(const Slice &suffix) const {
        return size_ >= suffix.size() && ToStringView().substr(size_ - suffix.size()) == suffix.ToStringView();
    }
    // How many bytes both begin with.
    size_t difference_offset(const Slice &other) const {
        size_t at = 0;
        while (at < size_ && at < other.size_ && data_[at] == other.data_[at]) {
            at++;
        }
        return at;
    }

private:
    const char *data_;
    size_t size_;
};

inline bool operator==(const Slice &left, const Slice &right) { return left.ToStringView() == right.ToStringView(); }
inline bool operator!=(const Slice &left, const Slice &right) { return !(left == right); }
inline bool operator<(const Slice &left, const Slice &right) { return left.compare(right) < 0; }

} // namespace stratakv

#endif
