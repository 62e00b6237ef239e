/* A CUDA driver library that computes nothing: device memory is the host's, launches and graphs are logged.

   What the engine calls by way of numba-cuda and NVIDIA's bindings comes in here as C sees it, which is what
   test_gpu_engine_stub.py is about. Set by the environment: STUB_INIT (what cuInit returns), STUB_VERSION,
   STUB_DEVICES, STUB_MEMORY (bytes). */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef uintptr_t Handle;
enum { OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

static Handle contexts[64], next_handle = 0x1000;
static int depth = 0;
static size_t used = 0;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

#define SAY(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), fflush(stderr))

Result cuInit(unsigned flags) { return (Result)setting("STUB_INIT", 0); }
Result cuDriverGetVersion(int *v) { *v = (int)setting("STUB_VERSION", 13000); return 0; }
Result cuGetErrorName(Result r, const char **text) { *text = "CUDA_ERROR_OF_THE_STUB"; return 0; }
Result cuGetErrorString(Result r, const char **text) { *text = "an error of the stub's"; return 0; }

/* The device: an H200. */
Result cuDeviceGet(int *d, int number) { *d = number; return 0; }
Result cuDeviceGetCount(int *n) { *n = (int)setting("STUB_DEVICES", 1); return 0; }
Result cuDeviceGetName(char *name, int size, int d) { strncpy(name, "Stub", size); return 0; }
Result cuDeviceGetUuid_v2(char *uuid, int d) { memset(uuid, 1, 16); return 0; }
Result cuDeviceGetUuid(char *uuid, int d) { return cuDeviceGetUuid_v2(uuid, d); }
Result cuDeviceGetAttribute(int *v, int attribute, int d) {
    static const int table[][2] = {{1, 1024}, {13, 1980000}, {16, 132}, {36, 3201000}, {37, 6144},
                                   {38, 62914560}, {75, 9}, {76, 0}, {81, 233472}, {82, 65536}, {97, 232448}};
    *v = 1;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i][0] == attribute) *v = table[i][1];
    return 0;
}

/* Contexts: one for each device; a stack for the one thread of the test. */
Result cuDevicePrimaryCtxRetain(Handle *c, int d) { *c = 0xC0 + d; return 0; }
Result cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
Result cuCtxGetCurrent(Handle *c) { *c = depth ? contexts[depth - 1] : 0; return 0; }
Result cuCtxSetCurrent(Handle c) { contexts[depth ? depth - 1 : depth++] = c; return 0; }
Result cuCtxPushCurrent_v2(Handle c) { contexts[depth++] = c; return 0; }
Result cuCtxPopCurrent_v2(Handle *c) { *c = contexts[--depth]; return 0; }
Result cuCtxGetDevice(int *d) { *d = (int)(contexts[depth - 1] - 0xC0); return 0; }

/* Memory. */
Result cuMemAlloc_v2(Handle *p, size_t size) {
    if (used + size > (size_t)setting("STUB_MEMORY", 1 << 30)) return OUT_OF_MEMORY;
    used += size;
    *p = (Handle)aligned_alloc(256, (size + 255) / 256 * 256);
    SAY("alloc %zu", size);
    return 0;
}
Result cuMemFree_v2(Handle p) { free((void *)p); SAY("free"); return 0; }
Result cuMemGetInfo_v2(size_t *left, size_t *all) {
    *all = (size_t)setting("STUB_MEMORY", 1 << 30);
    *left = *all - used;
    return 0;
}
Result cuMemsetD8Async(Handle to, unsigned char value, size_t size, Handle stream) {
    memset((void *)to, value, size);
    SAY("clear %d %zu", value, size);
    return 0;
}
Result cuMemHostAlloc(void **p, size_t size, unsigned flags) { *p = malloc(size); return 0; }
Result cuMemFreeHost(void *p) { free(p); return 0; }
Result cuMemcpyHtoDAsync_v2(Handle to, void *from, size_t size, Handle stream) {
    memcpy((void *)to, from, size);
    SAY("up %zu %.9g", size, *(float *)to);
    return 0;
}
Result cuMemcpyDtoHAsync_v2(void *to, Handle from, size_t size, Handle stream) {
    memcpy(to, (void *)from, size);
    SAY("down %zu", size);
    return 0;
}

/* Streams and events. */
Result cuStreamCreate(Handle *s, unsigned flags) { *s = next_handle++; SAY("stream %u", flags); return 0; }
Result cuStreamSynchronize(Handle s) { return 0; }
Result cuStreamIsCapturing(Handle s, int *status) { *status = 0; return 0; }
Result cuStreamWaitEvent(Handle s, Handle e, unsigned flags) { return 0; }
Result cuEventCreate(Handle *e, unsigned flags) { *e = next_handle++; return 0; }
Result cuEventDestroy_v2(Handle e) { return 0; }
Result cuEventRecord(Handle e, Handle s) { return 0; }
Result cuEventSynchronize(Handle e) { return 0; }
Result cuEventQuery(Handle e) { return (Result)setting("STUB_EVENT", 0); }
Result cuEventElapsedTime(float *ms, Handle a, Handle b) { *ms = 1.5f; return 0; }
Result cuEventElapsedTime_v2(float *ms, Handle a, Handle b) { *ms = 1.5f; return 0; }

/* Kernels: the first array of each, its elements and the first of them. */
Result cuModuleLoadData(Handle *m, const void *image) {
    *m = next_handle++;
    SAY("module %d", !memcmp(image, "\177ELF", 4));
    return 0;
}
Result cuModuleGetFunction(Handle *f, Handle m, const char *name) {
    *f = next_handle++;
    SAY("function %.6s", name);
    return 0;
}
Result cuLaunchKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Handle stream, void **parameters, void **extra) {
    int64_t array[7];
    for (int i = 0; i < 7; i++) array[i] = *(int64_t *)parameters[i];
    SAY("launch grid %u %u %u block %u %u %u shared %u extra %d array %d %d %d bytes %d first %.9g", gx, gy, gz, bx,
        by, bz, shared, extra != NULL, array[0] || array[1], (int)array[2], array[2] == array[5], (int)array[3],
        *(float *)array[4]);
    return 0;
}
Result cuLaunchCooperativeKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, Handle stream, void **parameters) {
    SAY("together grid %u %u %u block %u %u %u shared %u first %d", gx, gy, gz, bx, by, bz, shared,
        (int)((int64_t **)parameters)[2][0]);
    return 0;
}
Result cuFuncSetAttribute(Handle f, int attribute, int value) { SAY("attribute %d %d", attribute, value); return 0; }
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, Handle f, int threads, size_t shared) {
    SAY("room for %d threads %zu bytes", threads, shared);
    *n = 1;
    return 0;
}
Result cuThreadExchangeStreamCaptureMode(int *mode) {
    static int now = 0;
    int before = now;
    now = *mode;
    *mode = before;
    SAY("mode %d", now);
    return 0;
}
Result cuStreamBeginCapture_v2(Handle s, int mode) { SAY("capture %d", mode); return 0; }
Result cuStreamEndCapture(Handle s, Handle *g) { *g = next_handle++; SAY("captured"); return 0; }
Result cuGraphInstantiateWithFlags(Handle *e, Handle g, unsigned long long flags) { *e = next_handle++; return 0; }
Result cuGraphLaunch(Handle e, Handle s) { SAY("graph"); return 0; }
Result cuGraphDestroy(Handle g) { return 0; }
Result cuGraphExecDestroy(Handle e) { SAY("graph gone"); return 0; }

/* How the bindings find all of the above. */
Result cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status) {
    static const char *endings[] = {"_v2", "", "WithFlags"};
    char full[128];
    Dl_info here;
    dladdr((void *)cuInit, &here);
    void *self = dlopen(here.dli_fname, RTLD_NOW);
    *f = NULL;
    for (int i = 0; i < 3 && !*f; i++) {
        snprintf(full, sizeof full, "%s%s", name, endings[i]);
        *f = dlsym(self, full);
    }
    if (status) *status = *f ? 0 : 1;
    return *f ? 0 : NOT_FOUND;
}
Result cuGetProcAddress(const char *name, void **f, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, f, version, flags, NULL);
}
