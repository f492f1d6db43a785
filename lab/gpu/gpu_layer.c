/* An OpenCL layer that presents Intel's OpenCL runtime for CPUs as an integrated Intel GPU (Gen9, no XMX),
   close enough for OpenVINO's GPU plugin to compile and run models on it. For tests of correctness only.

   Environment: SIM_VERBOSE=1 prints failed calls and builds, 2 each launch. SIM_IP and SIM_ID set another GPU. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_ext.h>
#include <CL/cl_layer.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CALLS 1024 /* loaders may be newer than the headers */
static union {
  cl_icd_dispatch calls;
  void *slots[MOST_CALLS];
} table;
static const cl_icd_dispatch *next;
static int verbose;

static cl_uint number(const char *variable, cl_uint otherwise) {
  const char *text = getenv(variable);
  return text ? (cl_uint)strtoul(text, 0, 0) : otherwise;
}

static cl_int answer(const void *value, size_t size, size_t given, void *out, size_t *ret) {
  if (out && given < size) return CL_INVALID_VALUE;
  if (out) memcpy(out, value, size);
  if (ret) *ret = size;
  return CL_SUCCESS;
}
#define ANSWER(type, ...) do { type t[] = {__VA_ARGS__}; return answer(t, sizeof t, n, v, r); } while (0)
#define ANSWER_TEXT(text) return answer(text, sizeof text, n, v, r)

static cl_int CL_API_CALL device_info(cl_device_id d, cl_device_info p, size_t n, void *v, size_t *r) {
  switch (p) {
  case CL_DEVICE_TYPE: ANSWER(cl_device_type, CL_DEVICE_TYPE_GPU);
  case CL_DEVICE_NAME: ANSWER_TEXT("Intel(R) UHD Graphics (simulated)");
  case CL_DEVICE_VERSION: ANSWER_TEXT("OpenCL 3.0 NEO "); /* "3.1 (Build 0)" is the runtime's own */
  case CL_DEVICE_MAX_CLOCK_FREQUENCY: ANSWER(cl_uint, 1000);
  case CL_DEVICE_MAX_COMPUTE_UNITS: ANSWER(cl_uint, 24);
  case CL_DEVICE_MAX_WORK_GROUP_SIZE: ANSWER(size_t, 256);
  case CL_DEVICE_LOCAL_MEM_SIZE: ANSWER(cl_ulong, 65536);
  case CL_DEVICE_PARTITION_MAX_SUB_DEVICES: ANSWER(cl_uint, 0);
  case CL_DEVICE_HOST_UNIFIED_MEMORY: ANSWER(cl_bool, CL_TRUE);
  case CL_DEVICE_SUB_GROUP_SIZES_INTEL: ANSWER(size_t, 8, 16, 32);
  case 0x4250: ANSWER(cl_uint, number("SIM_IP", 9u << 22 | 9)); /* CL_DEVICE_IP_VERSION_INTEL: 9.0.9 */
  case 0x4251: ANSWER(cl_uint, number("SIM_ID", 0x1912));       /* ..._ID_INTEL */
  case 0x4252: ANSWER(cl_uint, 1);                              /* ..._NUM_SLICES_INTEL */
  case 0x4253: ANSWER(cl_uint, 3);                              /* ..._NUM_SUB_SLICES_PER_SLICE_INTEL */
  case 0x4254: ANSWER(cl_uint, 8);                              /* ..._NUM_EUS_PER_SUB_SLICE_INTEL */
  case 0x4255: ANSWER(cl_uint, 7);                              /* ..._NUM_THREADS_PER_EU_INTEL */
  case 0x4256: ANSWER(cl_bitfield, 0);                          /* ..._FEATURE_CAPABILITIES_INTEL: no DP4A, no DPAS */
  case CL_DEVICE_EXTENSIONS: {
    size_t size = 0;
    cl_int error = next->clGetDeviceInfo(d, p, 0, 0, &size);
    static const char more[] = " cl_khr_subgroups ";
    char *text = error ? 0 : calloc(1, size + sizeof more);
    if (text) error = next->clGetDeviceInfo(d, p, size, text, 0);
    if (!error) error = answer(strcat(text, more), strlen(text) + 1, n, v, r);
    free(text);
    return error;
  }
  }
  return next->clGetDeviceInfo(d, p, n, v, r);
}

static cl_int CL_API_CALL device_ids(cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *d, cl_uint *r) {
  return next->clGetDeviceIDs(p, t == CL_DEVICE_TYPE_GPU ? CL_DEVICE_TYPE_CPU : t, n, d, r);
}

/* Priorities, throttles and queue families are the GPU driver's: keep CL_QUEUE_PROPERTIES alone. */
static cl_command_queue CL_API_CALL queue(cl_context c, cl_device_id d, const cl_queue_properties *p, cl_int *e) {
  cl_queue_properties kept[3] = {0, 0, 0};
  for (; p && p[0]; p += 2)
    if (p[0] == CL_QUEUE_PROPERTIES) kept[0] = p[0], kept[1] = p[1];
  return next->clCreateCommandQueueWithProperties(c, d, kept, e);
}

/* The plugin asks kernels for their program after it has released its last handle. The CPU runtime answers
   CL_INVALID_PROGRAM to a retain then, so the last handle is leaked. */
static cl_int CL_API_CALL release_program(cl_program p) {
  cl_uint count = 0;
  next->clGetProgramInfo(p, CL_PROGRAM_REFERENCE_COUNT, sizeof count, &count, 0);
  return count == 1 ? CL_SUCCESS : next->clReleaseProgram(p);
}

/* On a GPU, sub-groups are consecutive in the linear order of a work-group, whatever its shape; the CPU runtime
   forms them along dimension 0 only. So a work-group is launched as one row (`launch`), and kernels compute the
   ids of its true shape, of which the first two sizes come as global offsets.
   The GPU's power instruction takes the magnitude of its base; kernels square with it. */
static const char prelude[] =
    "#pragma clang diagnostic ignored \"-Wincompatible-pointer-types\"\n"
    "inline size_t sim_local_size(uint d) { size_t a = get_global_offset(1), b = get_global_offset(2);\n"
    "  return d == 0 ? a : d == 1 ? b : d == 2 ? get_enqueued_local_size(0) / (a * b) : 1; }\n"
    "inline size_t sim_local_id(uint d) { size_t a = get_global_offset(1), b = get_global_offset(2), l = get_local_id(0);\n"
    "  return d == 0 ? l % a : d == 1 ? (l / a) % b : d == 2 ? l / (a * b) : 0; }\n"
    "inline size_t sim_global_id(uint d) { return d < 3 ? get_group_id(d) * sim_local_size(d) + sim_local_id(d) : 0; }\n"
    "inline size_t sim_global_size(uint d) { return d < 3 ? get_num_groups(d) * sim_local_size(d) : 1; }\n"
    "#define get_local_size(d) sim_local_size(d)\n"
    "#define get_enqueued_local_size(d) sim_local_size(d)\n"
    "#define get_local_id(d) sim_local_id(d)\n"
    "#define get_global_id(d) sim_global_id(d)\n"
    "#define get_global_size(d) sim_global_size(d)\n"
    "#define get_global_offset(d) 0\n"
    "#define get_global_linear_id() ((sim_global_id(2) * sim_global_size(1) + sim_global_id(1)) * sim_global_size(0) + sim_global_id(0))\n"
    "#define reqd_work_group_size(x, y, z) reqd_work_group_size((x) * (y) * (z), 1, 1)\n"
    "#define native_powr(x, y) native_powr(fabs(x), y)\n"
    "#line 1\n";

static cl_program CL_API_CALL source(cl_context c, cl_uint n, const char **s, const size_t *l, cl_int *e) {
  const char *texts[n + 1];
  size_t sizes[n + 1];
  texts[0] = prelude, sizes[0] = strlen(prelude);
  for (cl_uint i = 0; i < n; i++) texts[i + 1] = s[i], sizes[i + 1] = l && l[i] ? l[i] : strlen(s[i]);
  return next->clCreateProgramWithSource(c, n + 1, texts, sizes, e);
}

/* These kernels take the compiler a minute in f16; others would run ten times as long without optimization, and
   some of those of paged attention give wrong results. */
static int takes_long(cl_program p) {
  size_t size = 0;
  cl_int error = next->clGetProgramInfo(p, CL_PROGRAM_SOURCE, 0, 0, &size);
  char *text = error ? 0 : calloc(1, size + 1);
  if (text) error = next->clGetProgramInfo(p, CL_PROGRAM_SOURCE, size, text, 0);
  int found = text && !error && strstr(text, "sdpa_opt__") && !strstr(text, "paged_attention_opt__");
  free(text);
  return found;
}

static cl_int CL_API_CALL build(cl_program p, cl_uint n, const cl_device_id *d, const char *given,
                                void(CL_CALLBACK *f)(cl_program, void *), void *u) {
  static const char without[] = " -cl-opt-disable";
  char *o = calloc(1, (given ? strlen(given) : 0) + sizeof without);
  if (!o) return CL_OUT_OF_HOST_MEMORY;
  strcat(strcpy(o, given ? given : ""), takes_long(p) ? without : "");
  cl_int error = next->clBuildProgram(p, n, d, o, f, u);
  if (verbose) fprintf(stderr, "[gpu_sim] build %s-> %d\n", o, error);
  free(o);
  if (verbose && error && n) {
    static char text[8000];
    next->clGetProgramBuildInfo(p, d[0], CL_PROGRAM_BUILD_LOG, sizeof text, text, 0);
    fprintf(stderr, "%s\n", text);
  }
  return error;
}

static cl_int CL_API_CALL launch(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *off, const size_t *g,
                                 const size_t *l, cl_uint n, const cl_event *w, cl_event *e) {
  size_t row[3] = {1, 1, 1}, shape[3] = {0, 1, 1}, items[3] = {1, 1, 1};
  for (cl_uint i = 0; i < dims; i++) {
    size_t size = l ? l[i] : 1;
    if (!size || g[i] % size || (off && off[i])) {
      fprintf(stderr, "[gpu_sim] not simulated: work-groups of unequal size, or a global offset\n");
      return CL_INVALID_WORK_GROUP_SIZE;
    }
    items[i] = g[i] / size;
    row[0] *= size;
    if (i < 2) shape[i + 1] = size;
  }
  items[0] *= row[0];
  cl_int error = next->clEnqueueNDRangeKernel(q, k, 3, shape, items, row, n, w, e);
  if (verbose > 1 || (verbose && error)) {
    char name[512] = "";
    next->clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof name, name, 0);
    fprintf(stderr, "[gpu_sim] %s -> %d\n", name, error);
  }
  return error;
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info p, size_t n, void *v, size_t *r) {
  if (p == CL_LAYER_API_VERSION) ANSWER(cl_layer_api_version, CL_LAYER_API_VERSION_100);
  if (p == CL_LAYER_NAME) ANSWER_TEXT("gpu_sim");
  return CL_INVALID_VALUE;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *target, cl_uint *count,
                                            const cl_icd_dispatch **ours) {
  if (n > MOST_CALLS) return CL_INVALID_VALUE;
  verbose = (int)number("SIM_VERBOSE", 0);
  next = target;
  memcpy(&table, target, n * sizeof(void *));
  table.calls.clGetDeviceInfo = device_info;
  table.calls.clGetDeviceIDs = device_ids;
  table.calls.clCreateCommandQueueWithProperties = queue;
  table.calls.clReleaseProgram = release_program;
  table.calls.clCreateProgramWithSource = source;
  table.calls.clBuildProgram = build;
  table.calls.clEnqueueNDRangeKernel = launch;
  *ours = &table.calls;
  *count = n;
  return CL_SUCCESS;
}

/* Loaders of 2024 and later want these two. */
CL_API_ENTRY cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n, const cl_icd_dispatch *target, cl_uint *count,
                                                          const cl_icd_dispatch **ours, const intptr_t *properties) {
  (void)properties;
  return clInitLayer(n, target, count, ours);
}
CL_API_ENTRY cl_int CL_API_CALL clDeinitLayer(void) { return CL_SUCCESS; }
