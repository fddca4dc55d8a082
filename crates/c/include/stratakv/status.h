// What a call came to, in the shape of rocksdb::Status.
#ifndef STRATAKV_STATUS_H
#define STRATAKV_STATUS_H

#include <string>
#include <utility>

#include "../stratakv.h"
#include "slice.h"

namespace stratakv {

// Success, or a kind of failure with a text that says what, why, and what to do next.
class Status {
public:
    // The numbers are RocksDB's.
    enum Code : unsigned char {
        kOk = 0,
        kNotFound = 1,
        kCorruption = 2,
        kNotSupported = 3,
        kInvalidArgument = 4,
        kIOError = 5,
        kIncomplete = 7,
        kShutdownInProgress = 8,
        kTimedOut = 9,
        kAborted = 10,
        kBusy = 11,
        kTryAgain = 13,
    };
    enum SubCode : unsigned char { kNone = 0, kNoSpace = 4 };

    Status() = default;
    static Status OK() { return Status(); }
    static Status NotFound(const Slice &text = Slice()) { return Status(kNotFound, text.ToString()); }
    static Status Corruption(const Slice &text = Slice()) { return Status(kCorruption, text.ToString()); }
    static Status NotSupported(const Slice &text = Slice()) { return Status(kNotSupported, text.ToString()); }
    static Status InvalidArgument(const Slice &text = Slice()) { return Status(kInvalidArgument, text.ToString()); }
    static Status IOError(const Slice &text = Slice()) { return Status(kIOError, text.ToString()); }
    static Status NoSpace(const Slice &text = Slice()) { return Status(kIOError, text.ToString(), kNoSpace); }
    static Status Aborted(const Slice &text = Slice()) { return Status(kAborted, text.ToString()); }
    static Status Busy(const Slice &text = Slice()) { return Status(kBusy, text.ToString()); }

    // What the C interface answered. Takes the message, which may be null, and frees it.
    static Status FromC(stratakv_status status, char *message) {
        Status made(CodeOf(status), message == nullptr ? "" : message);
        made.subcode_ = status == STRATAKV_ERROR_FULL ? kNoSpace : kNone;
        stratakv_message_free(message);
        return made;
    }

    bool ok() const { return code_ == kOk; }
    bool IsNotFound() const { return code_ == kNotFound; }
    bool IsCorruption() const { return code_ == kCorruption; }
    bool IsNotSupported() const { return code_ == kNotSupported; }
    bool IsInvalidArgument() const { return code_ == kInvalidArgument; }
    bool IsIOError() const { return code_ == kIOError; }
    bool IsNoSpace() const { return code_ == kIOError && subcode_ == kNoSpace; }
    bool IsIncomplete() const { return code_ == kIncomplete; }
    bool IsShutdownInProgress() const { return code_ == kShutdownInProgress; }
    bool IsTimedOut() const { return code_ == kTimedOut; }
    bool IsAborted() const { return code_ == kAborted; }
    bool IsBusy() const { return code_ == kBusy; }
    bool IsTryAgain() const { return code_ == kTryAgain; }

    Code code() const { return code_; }
    SubCode subcode() const { return subcode_; }
    // The text alone; null if there is none.
    const char *getState() const { return text_.empty() ? nullptr : text_.c_str(); }
    // "OK", or the kind, a colon and the text.
    std::string ToString() const { return ok() ? "OK" : std::string(Name()) + ": " + text_; }

    bool operator==(const Status &other) const { return code_ == other.code_; }
    bool operator!=(const Status &other) const { return code_ != other.code_; }
    // That a failure is ignored on purpose.
    void PermitUncheckedError() const {}

private:
    Status(Code code, std::string text, SubCode subcode = kNone)
        : code_(code), subcode_(subcode), text_(std::move(text)) {}

    static Code CodeOf(stratakv_status status) {
        switch (status) {
        case STRATAKV_OK:
            return kOk;
        case STRATAKV_ABSENT:
            return kNotFound;
        case STRATAKV_UNMET:
        case STRATAKV_ERROR_BUSY:
            return kBusy;
        case STRATAKV_ERROR_USAGE:
        case STRATAKV_ERROR_NOT_FOUND: // there is no such store; of keys it is kNotFound
            return kInvalidArgument;
        case STRATAKV_ERROR_CORRUPT:
            return kCorruption;
        case STRATAKV_ERROR_UNSUPPORTED:
            return kNotSupported;
        case STRATAKV_ERROR_CLOSED:
            return kShutdownInProgress;
        case STRATAKV_ERROR_INTERNAL:
            return kAborted;
        default: // locked, full, of the device; of an unknown outcome
            return kIOError;
        }
    }

    const char *Name() const {
        switch (code_) {
        case kOk:
            return "OK";
        case kNotFound:
            return "NotFound";
        case kCorruption:
            return "Corruption";
        case kNotSupported:
            return "Not implemented";
        case kInvalidArgument:
            return "Invalid argument";
        case kIOError:
            return subcode_ == kNoSpace ? "IO error: No space left on device" : "IO error";
        case kIncomplete:
            return "Result incomplete";
        case kShutdownInProgress:
            return "Shutdown in progress";
        case kTimedOut:
            return "Operation timed out";
        case kAborted:
            return "Operation aborted";
        case kBusy:
            return "Resource busy";
        default:
            return "Operation failed. Try again.";
        }
    }

    Code code_ = kOk;
    SubCode subcode_ = kNone;
    std::string text_;
};

} // namespace stratakv

#endif
