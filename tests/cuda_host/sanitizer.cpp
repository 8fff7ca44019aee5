// What g++'s -fsanitize calls in kernels when it meets what C++ leaves undefined: the launch ends with the line and the reason.
#include <cstdio>

#include "kernel.h"

namespace {

constexpr int FAILED = 719, MISALIGNED = 716, ILLEGAL_ADDRESS = 700;

struct Place {
    const char* file;
    unsigned line, column;
};
struct Type {
    uint16_t kind, info;
    char name[1];
};
struct Access {
    Place place;
    const Type* type;
    unsigned char log_alignment, kind;
};
struct Index {
    Place place;
    const Type *array, *index;
};
struct Arithmetic {
    Place place;
    const Type* type;
};
struct Shift {
    Place place;
    const Type *left, *right;
};

const char* word(unsigned char kind) {
    return kind == 0 ? "read" : kind == 1 ? "write" : "use";  // a member of a struct is "used"
}

// An integer of up to 64 bits lies in the handle itself.
long long number(const Type* type, void* value) {
    unsigned bits = 1u << (type->info >> 1);
    if (bits > 64) return 0;
    auto raw = (unsigned long long)(uintptr_t)value << (64 - bits);
    return type->info & 1 ? (long long)raw >> (64 - bits) : (long long)(raw >> (64 - bits));
}

}  // namespace

extern "C" {

void __ubsan_handle_type_mismatch_v1_abort(Access* a, void* address) {
    if (!address)
        cuda_host_stop(ILLEGAL_ADDRESS, "line %u: %s of a null pointer to %s", a->place.line, word(a->kind), a->type->name);
    cuda_host_stop(MISALIGNED, "line %u: misaligned %s of %s at %p, which needs a multiple of %u bytes", a->place.line,
                   word(a->kind), a->type->name, address, 1u << a->log_alignment);
}

void __ubsan_handle_out_of_bounds_abort(Index* a, void* index) {
    cuda_host_stop(ILLEGAL_ADDRESS, "line %u: index %lld out of bounds of %s", a->place.line, number(a->index, index),
                   a->array->name);
}

void __ubsan_handle_shift_out_of_bounds_abort(Shift* a, void*, void* by) {
    cuda_host_stop(FAILED, "line %u: a shift of %s by %lld", a->place.line, a->left->name, number(a->right, by));
}

void __ubsan_handle_divrem_overflow_abort(Arithmetic* a, void*, void*) {
    cuda_host_stop(FAILED, "line %u: division of %s by zero, or of the least by -1", a->place.line, a->type->name);
}

void __ubsan_handle_add_overflow_abort(Arithmetic* a, void*, void*) {
    cuda_host_stop(FAILED, "line %u: a sum of %s overflows", a->place.line, a->type->name);
}

void __ubsan_handle_sub_overflow_abort(Arithmetic* a, void*, void*) {
    cuda_host_stop(FAILED, "line %u: a difference of %s overflows", a->place.line, a->type->name);
}

void __ubsan_handle_mul_overflow_abort(Arithmetic* a, void*, void*) {
    cuda_host_stop(FAILED, "line %u: a product of %s overflows", a->place.line, a->type->name);
}

void __ubsan_handle_negate_overflow_abort(Arithmetic* a, void*) {
    cuda_host_stop(FAILED, "line %u: the negative of %s overflows", a->place.line, a->type->name);
}

void __ubsan_handle_builtin_unreachable(Place* place) { cuda_host_stop(FAILED, "line %u: unreachable", place->line); }

void __ubsan_handle_missing_return(Place* place) {
    cuda_host_stop(FAILED, "line %u: a function ends without a value", place->line);
}

void __ubsan_handle_load_invalid_value_abort(Arithmetic* a, void*) {
    cuda_host_stop(FAILED, "line %u: a %s that is neither true nor false", a->place.line, a->type->name);
}
}
