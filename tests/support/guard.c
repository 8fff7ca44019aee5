/*
 * An allocator for LD_PRELOAD: memory of NumPy's arrays and of compiled code ends at a page that nobody may touch, is full of
 * ones (NaN) at first, and is never used again when it is freed. A read or write past its end, or after its end, is a fault at
 * once; a write in the few bytes around it is found when it is freed. Other memory is the C library's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
#define ROOM ((size_t)8 << 40)  /* addresses, of which none is used twice */
#define MOST_LIVE 24000         /* each takes two of the 65,530 areas that Linux gives a process */
#define LEAST 24
#define MOST ((size_t)64 << 20)
#define MAGIC 0x6775617264ul
#define KNOWN 8192

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

typedef struct { size_t size, pages; char *data; uint64_t magic; } head;

static char *base;
static _Atomic size_t next_at, live;
static struct { _Atomic uintptr_t at; _Atomic int is_guarded; } known[KNOWN];

__attribute__((constructor)) static void start(void) {
    base = mmap(0, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) base = NULL;
}

static int is_inside(void *p) { return base && (char *)p >= base && (char *)p < base + ROOM; }

/* Callers are NumPy's core, and code that lies in no file: ours. */
static int is_wanted(void *caller) {
    static __thread int busy;
    uintptr_t at = (uintptr_t)caller;
    unsigned k = (at >> 1) * 2654435761u % KNOWN;
    if (known[k].at == at) return known[k].is_guarded;
    if (busy) return 0;
    Dl_info info;
    busy = 1;
    int found = !dladdr(caller, &info) || !info.dli_fname || strstr(info.dli_fname, "_multiarray_umath");
    busy = 0;
    known[k].is_guarded = found;
    known[k].at = at;
    return found;
}

static void *guarded(size_t align, size_t size, int is_zero, void *caller) {
    if (!base || size < LEAST || size > MOST || live >= MOST_LIVE || !is_wanted(caller)) return NULL;
    if (align < 16) align = 16;
    size_t pages = (size + align + sizeof(head) + PAGE - 1) / PAGE;
    size_t at = atomic_fetch_add(&next_at, (pages + 1) * PAGE);
    if (at + (pages + 1) * PAGE > ROOM) return NULL;
    char *start = base + at, *end = start + pages * PAGE;
    if (mprotect(start, pages * PAGE, PROT_READ | PROT_WRITE)) return NULL;
    char *data = (char *)(((uintptr_t)end - size) & -align);
    memset(start, 0xFF, end - start);
    if (is_zero) memset(data, 0, size);
    *(head *)start = (head){size, pages, data, MAGIC};
    atomic_fetch_add(&live, 1);
    return data;
}

static head *head_of(void *data) {  /* of memory that was freed there is none: a fault */
    for (char *p = (char *)((uintptr_t)data & -PAGE);; p -= PAGE) {
        head *h = (head *)p;
        if (h->magic == MAGIC && h->data == data) return h;
    }
}

static void check(head *h) {
    for (char *p = (char *)(h + 1), *end = (char *)h + h->pages * PAGE; p < end; p++) {
        if (p == h->data) p += h->size;
        if (p < end && *p != (char)0xFF) {
            fprintf(stderr, "guard: a block of %zu bytes was left: %td\n", h->size, p - h->data);
            abort();
        }
    }
}

void *malloc(size_t n) {
    void *p = guarded(16, n, 0, __builtin_return_address(0));
    return p ? p : __libc_malloc(n);
}

void *calloc(size_t count, size_t each) {
    size_t n;
    void *p = __builtin_mul_overflow(count, each, &n) ? NULL : guarded(16, n, 1, __builtin_return_address(0));
    return p ? p : __libc_calloc(count, each);
}

void free(void *p) {
    if (!is_inside(p)) {
        __libc_free(p);
        return;
    }
    head *h = head_of(p);
    check(h);
    mmap(h, h->pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    atomic_fetch_sub(&live, 1);
}

void *realloc(void *p, size_t n) {
    void *caller = __builtin_return_address(0);
    if (p && !is_inside(p)) return __libc_realloc(p, n);
    void *other = guarded(16, n, 0, caller);
    if (!other) other = __libc_malloc(n);
    if (p && other) {
        size_t had = head_of(p)->size;
        memcpy(other, p, n < had ? n : had);
        free(p);
    }
    return other;
}

void *aligned_alloc(size_t align, size_t n) {
    void *p = guarded(align, n, 0, __builtin_return_address(0));
    return p ? p : __libc_memalign(align, n);
}

void *memalign(size_t align, size_t n) { return aligned_alloc(align, n); }

int posix_memalign(void **found, size_t align, size_t n) {
    *found = aligned_alloc(align, n);
    return *found ? 0 : 12;
}
