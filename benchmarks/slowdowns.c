/* A program that generates tokens, with one kind of slowdown: see slowdowns.py.

   Compile with -DKIND=… -DAMOUNT=… -DSLOW=0 or 1. With a third argument it prints to stderr, at
   the end, the nanoseconds between its first and its last token, and those of them in which its
   main thread waited for a CPU. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    ARITHMETIC, BRANCHES, STRIDE, WORKING_SET, ALLOCATION, PAGE_FAULTS, SYSTEM_CALLS, LOCK,
    SLEEP, FILE_READS, COPY, VECTORS, THREAD_FEWER
};
#ifndef FROM_KB
#define FROM_KB 16
#define TO_KB 16
#endif
#define MATRIX 1024
#define LARGEST (16 << 20)

static uint32_t steps(uint32_t x, long count)
{
    for (long i = 0; i < count; i++)
        x = x * 1103515245u + 12345u;
    return x;
}

static float weights[256 * 1024], state[1024];
static uint8_t *data;
static FILE *file;

/* What every token costs without a slowdown: about 2 ms of arithmetic and of streaming 1 MB. */
static uint32_t common_work(uint32_t x)
{
    for (int row = 0; row < 512; row++) {
        float sum = 0;
        for (int i = 0; i < 1024; i++)
            sum += weights[row % 256 * 1024 + i] * state[i];
        state[row] = sum * 1e-3f;
    }
    return steps(x, 800000);
}

static uint32_t branches(uint32_t x)
{
    const uint8_t *random = data;
    for (long i = 0; i < AMOUNT; i++) {
        int taken = SLOW ? random[i & 0xfffff] & 1 : (i >> 12) & (random[i & 0xfffff] != 0);
        if (taken & 1) {
            __asm__ volatile("" : "+r"(x));
            x += 3;
        } else {
            __asm__ volatile("" : "+r"(x));
            x ^= 5;
        }
    }
    return x;
}

static uint32_t stride(uint32_t x)
{
    const float *matrix = (const float *)data;
    float sum = 0;
    for (int i = 0; i < AMOUNT; i++)
        for (int j = 0; j < MATRIX; j++)
            sum += matrix[SLOW ? j * MATRIX + i % MATRIX : i % MATRIX * MATRIX + j];
    return x + (uint32_t)sum;
}

static uint32_t working_set(uint32_t x)
{
    const uint32_t *words = (const uint32_t *)data;
    const uint32_t mask = (SLOW ? TO_KB : FROM_KB) * 1024 / sizeof(uint32_t) - 1;
    for (long i = 0; i < AMOUNT; i++)
        x = (x + words[(x >> 4) & mask]) * 1103515245u + 12345u;
    return x;
}

static uint32_t allocation(uint32_t x)
{
    static uint8_t *blocks[AMOUNT];
    for (int i = 0; i < AMOUNT; i++) {
        blocks[i] = malloc(32 + (x + i * 37) % 700);
        blocks[i][0] = (uint8_t)i;
    }
    for (int i = 0; i < AMOUNT; i++) {
        x += blocks[i][0];
        free(blocks[i]);
    }
    return x;
}

static uint32_t page_faults(uint32_t x)
{
    size_t bytes = (size_t)AMOUNT * 4096;
    uint8_t *pages = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pages, bytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < bytes; at += 4096)
        pages[at] = (uint8_t)x;
    munmap(pages, bytes);
    return x;
}

static uint32_t system_calls(uint32_t x)
{
    for (int i = 0; i < AMOUNT; i++)
        x += (uint32_t)syscall(SYS_getppid) & 1;
    return x;
}

static uint32_t sleep_a_while(uint32_t x)
{
    struct timespec pause = {0, AMOUNT};
    nanosleep(&pause, 0);
    return x;
}

static uint32_t file_reads(uint32_t x)
{
    static uint8_t read[16384];
    for (int i = 0; i < AMOUNT; i++)
        x += (uint32_t)pread(fileno(file), read, sizeof read, i % 16 * sizeof read) + read[0];
    return x;
}

static uint32_t copy(uint32_t x)
{
    static uint8_t source[AMOUNT * 1024], target[AMOUNT * 1024];
    source[x % sizeof source] = (uint8_t)x;
    memcpy(target, source, sizeof target);
    return x + target[x % sizeof target];
}

#if SLOW
__attribute__((optimize("no-tree-vectorize"), noinline))
#else
__attribute__((optimize("O3"), noinline))
#endif
static uint32_t vectors(uint32_t x)
{
    static uint32_t left[1024], right[1024];
    for (int pass = 0; pass < AMOUNT; pass++) {
        left[pass % 1024] = x;
        for (int i = 0; i < 1024; i++)
            x += (left[i] ^ right[i]) + (left[i] >> 3);
    }
    return x;
}

/* Two threads that meet before and after their part of each token. */
static pthread_barrier_t begin, end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile uint32_t shared;

static void part(int is_helper)
{
    if (KIND == LOCK) {
        uint32_t local = (uint32_t)is_helper;
        for (int i = 0; i < 20; i++) { /* SLOW: the lock is held while a thread works alone. */
            if (SLOW)
                pthread_mutex_lock(&lock);
            local = steps(local, AMOUNT / 20);
            if (!SLOW)
                pthread_mutex_lock(&lock);
            shared += local;
            pthread_mutex_unlock(&lock);
        }
    } else if (!SLOW) {
        shared += steps(is_helper, AMOUNT / 2);
    } else if (!is_helper) {
        shared += steps(is_helper, AMOUNT);
    }
}

static void *help(void *unused)
{
    for (;;) {
        pthread_barrier_wait(&begin);
        part(1);
        pthread_barrier_wait(&end);
    }
    return unused;
}

static uint32_t meet(uint32_t x)
{
    pthread_barrier_wait(&begin);
    part(0);
    pthread_barrier_wait(&end);
    return x + shared;
}

static uint32_t slowdown(uint32_t x)
{
    switch (KIND) {
    case BRANCHES: return branches(x);
    case STRIDE: return stride(x);
    case WORKING_SET: return working_set(x);
    case VECTORS: return vectors(x);
    case LOCK:
    case THREAD_FEWER: return meet(x);
    }
    if (!SLOW)
        return x;
    switch (KIND) {
    case ARITHMETIC: return steps(x, AMOUNT);
    case ALLOCATION: return allocation(x);
    case PAGE_FAULTS: return page_faults(x);
    case SYSTEM_CALLS: return system_calls(x);
    case SLEEP: return sleep_a_while(x);
    case FILE_READS: return file_reads(x);
    case COPY: return copy(x);
    }
    abort();
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static int64_t run_delay_ns(void)
{
    long long on_cpu, delay = 0;
    FILE *statistics = fopen("/proc/self/schedstat", "r");
    if (statistics && fscanf(statistics, "%lld %lld", &on_cpu, &delay) != 2)
        abort();
    if (statistics)
        fclose(statistics);
    return delay;
}

static void prepare(void)
{
    data = malloc(LARGEST);
    uint32_t x = 1;
    for (int i = 0; i < LARGEST; i++)
        data[i] = (uint8_t)((x = steps(x, 1)) >> 16);
    if (KIND == STRIDE)
        for (int i = 0; i < MATRIX * MATRIX; i++)
            ((float *)data)[i] = 0.5f;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        weights[i] = (i % 17 - 8.0f) * 1e-3f;
    for (int i = 0; i < 1024; i++)
        state[i] = i % 5;
    file = tmpfile();
    fwrite(data, 1, 1 << 18, file);
    fflush(file);
    if (KIND == LOCK || KIND == THREAD_FEWER) {
        pthread_t helper;
        pthread_barrier_init(&begin, 0, 2);
        pthread_barrier_init(&end, 0, 2);
        pthread_create(&helper, 0, help, 0);
    }
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    prepare();
    uint32_t x = 1;
    int64_t began_ns = 0, delayed_ns = 0;
    int tokens = atoi(words[2]);
    for (int token = 0; token < tokens; token++) {
        x = slowdown(common_work(x));
        printf("%d ", token % 10);
        fflush(stdout);
        if (token == 0) {
            delayed_ns = run_delay_ns();
            began_ns = now_ns();
        }
    }
    int64_t took_ns = now_ns() - began_ns;
    if (count > 3)
        fprintf(stderr, "%lld %lld\n", (long long)took_ns, (long long)(run_delay_ns() - delayed_ns));
    __asm__ volatile("" : : "r"(x));
    return 0;
}
