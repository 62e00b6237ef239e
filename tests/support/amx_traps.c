/* AMX on a processor that has none: its instructions raise SIGILL, and the handler carries them out.
 *
 * So the machine code that LLVM makes for a processor with AMX runs as it is, instruction by instruction. By Intel's
 * manual (volume 2: TILELOADD, TDPBF16PS, ...): each thread has its own tiles; a term is one fused multiply-add; the
 * sums of even and of odd terms are added up apart; numbers below the normal range are zero, read or written.
 * The only configuration known is the one that bslite uses, 16 rows of 64 bytes; another, or none, aborts. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { ROWS = 16, BYTES = 64 };

static __thread struct {
    int configured;
    unsigned char tiles[8][ROWS][BYTES];
} unit;

/* How many were carried out: configurations, releases, zeros, loads, stores, products. */
uint64_t amx_counts[6];

static void fail(const char *why) {
    (void)!write(2, why, strlen(why));
    abort();
}

static void count(int kind) { __atomic_fetch_add(&amx_counts[kind], 1, __ATOMIC_RELAXED); }

static int64_t value_of(const ucontext_t *context, int number) {
    static const int names[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[names[number]];
}

static unsigned char (*tile(int number))[BYTES] {
    if (!unit.configured)
        fail("amx_traps: a tile is used before the unit is configured\n");
    if (number > 7)
        fail("amx_traps: there are eight tiles\n");
    return unit.tiles[number];
}

static void configure(const unsigned char *config) {
    int right = config[0] == 1 && config[1] == 0;
    for (int i = 0; i < 8; i++)
        right &= config[16 + 2 * i] == BYTES && config[17 + 2 * i] == 0 && config[48 + i] == ROWS;
    for (int i = 0; i < 8; i++)
        right &= config[32 + i] == 0 && config[40 + i] == 0 && config[56 + i] == 0;
    for (int i = 2; i < 16; i++)
        right &= config[i] == 0;
    if (!right)
        fail("amx_traps: not the configuration of eight tiles of 16 rows of 64 bytes\n");
    memset(&unit, 0, sizeof unit);
    unit.configured = 1;
}

static float number_of(const unsigned char *half) {
    uint32_t bits = (uint32_t)half[0] << 16 | (uint32_t)half[1] << 24;
    float made;
    memcpy(&made, &bits, 4);
    return made;
}

static void multiply(unsigned char (*sums)[BYTES], unsigned char (*a)[BYTES], unsigned char (*b)[BYTES]) {
    for (int m = 0; m < ROWS; m++) {
        float parts[2][16] = {{0}}, line[16];
        for (int k = 0; k < 16; k++)
            for (int odd = 0; odd < 2; odd++) {
                float x = number_of(a[m] + 4 * k + 2 * odd);
                for (int n = 0; n < 16; n++)
                    parts[odd][n] = fmaf(x, number_of(b[k] + 4 * n + 2 * odd), parts[odd][n]);
            }
        memcpy(line, sums[m], BYTES);
        for (int n = 0; n < 16; n++)
            line[n] += parts[0][n] + parts[1][n];
        memcpy(sums[m], line, BYTES);
    }
}

/* Carries out the instruction at the program counter; 0 if it is not one of AMX's. */
static int carry_out(ucontext_t *context) {
    const unsigned char *start = (const unsigned char *)context->uc_mcontext.gregs[REG_RIP], *at = start;
    if (at[0] != 0xC4 || (at[1] & 31) != 2 || (at[2] & 0x84) != 0) /* VEX, map 0F38, W0, 128 bits */
        return 0;
    int high_reg = !(at[1] & 128) * 8, high_index = !(at[1] & 64) * 8, high_base = !(at[1] & 32) * 8;
    int third = ~at[2] >> 3 & 15, prefix = at[2] & 3, code = at[3], modrm = at[4];
    int mod = modrm >> 6, reg = (modrm >> 3 & 7) + high_reg, low = modrm & 7;
    at += 5;
    int64_t address = 0, stride = 0;
    if (mod != 3) {
        int base = low + high_base;
        if (low == 4) { /* a byte of scale, index and base */
            int sib = *at++, index = (sib >> 3 & 7) + high_index;
            base = (sib & 7) + high_base;
            if (index != 4)
                stride = value_of(context, index) * (1 << (sib >> 6));
            low = sib & 7;
        } else if (code == 0x4B)
            return 0; /* rows need a stride */
        int32_t shift = 0;
        if (mod == 1)
            shift = (int8_t)*at++;
        else if (mod == 2 || low == 5) {
            memcpy(&shift, at, 4);
            at += 4;
        }
        if (mod == 0 && low == 5) {
            if ((modrm & 7) == 5)
                address = (int64_t)at; /* relative to the next instruction */
        } else
            address = value_of(context, base);
        address += shift;
    }
    if (code == 0x49 && prefix == 0 && mod != 3) {
        configure((const unsigned char *)address);
        count(0);
    } else if (code == 0x49 && prefix == 0 && modrm == 0xC0) {
        unit.configured = 0;
        count(1);
    } else if (code == 0x49 && prefix == 3 && mod == 3) {
        memset(tile(reg), 0, ROWS * BYTES);
        count(2);
    } else if (code == 0x4B && prefix == 3 && mod != 3) {
        for (int row = 0; row < ROWS; row++)
            memcpy(tile(reg)[row], (void *)(address + row * stride), BYTES);
        count(3);
    } else if (code == 0x4B && prefix == 2 && mod != 3) {
        for (int row = 0; row < ROWS; row++)
            memcpy((void *)(address + row * stride), tile(reg)[row], BYTES);
        count(4);
    } else if (code == 0x5C && prefix == 2 && mod == 3) {
        if (reg == low || reg == third || low == third)
            fail("amx_traps: a product of one tile with itself\n"); /* which is not allowed */
        multiply(tile(reg), tile(low), tile(third));
        count(5);
    } else
        return 0;
    context->uc_mcontext.gregs[REG_RIP] += at - start;
    return 1;
}

static void handle(int signal_number, siginfo_t *info, void *context) {
    (void)info;
    _mm_setcsr(0x1F80 | 0x8040); /* rounds to nearest; numbers below the normal range are zero */
    if (!carry_out(context))
        signal(signal_number, SIG_DFL); /* it is met again */
}

int amx_install(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    return sigaction(SIGILL, &action, NULL);
}
