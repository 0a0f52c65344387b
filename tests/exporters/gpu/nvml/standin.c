/* A stand-in for libnvidia-ml.so.1, so that the real nvidia-ml-py can be tested without a GPU.
 *
 * Its answers come from a file that the tests map too (STANDIN_STATE) and edit while it runs; the layout
 * is mirrored in standin.py, which compares sizes. Only what the exporter calls is here. GENERATION is the
 * driver this library belongs to: once the state names another one, every call answers 18 as a real
 * library does under a replaced driver, and only the other library helps. WITHOUT_TEMPERATURE_V leaves a
 * symbol out, as an old driver does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef GENERATION
#define GENERATION 1
#endif
#define GPUS 8
#define FIELDS 48
#define PROCESSES 24
#define MIGS 7
#define RULES 32
#define EVENTS 64

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SIZE = 7, TIMEOUT = 10,
       REPLACED = 18, VERSION = 25 };

struct field { uint32_t id, type, code, pad; uint64_t bits; };
struct process { uint32_t pid, sm; uint64_t memory, sampled; };
struct mig { uint32_t gi, ci; uint64_t total, used; };
struct gpu {
  char uuid[80], name[96], bus[32];
  uint32_t code, persistence;
  uint32_t sm, sm_max, memory_clock, memory_clock_max;
  uint64_t reasons, reasons_known;
  int32_t temperature, margin;
  uint32_t threshold[3], power, limit, default_limit;
  uint64_t energy;
  uint32_t busy, memory_busy;
  uint64_t total, used, free, reserved;
  uint64_t ecc[2][2];
  uint32_t remap[4];
  uint32_t width, width_max, generation, generation_max, replays;
  uint32_t links, links_up;
  uint32_t mig_on, migs;
  struct mig mig[MIGS];
  uint64_t cpus[16], events;
  uint32_t processes, fields;
  struct process process[PROCESSES];
  struct field field[FIELDS];
};
/* What one call does: an error code (0: none), after a delay; gpu -1 means every GPU. */
struct rule { char call[64]; int32_t gpu; uint32_t code, delay_us, pad; };
struct event { uint32_t gpu, pad; uint64_t type, data; };
struct state {
  uint32_t size, count, generation, rules, head, tail;
  uint64_t calls;
  char driver[80];
  struct rule rule[RULES];
  struct event event[EVENTS];
  struct gpu gpu[GPUS];
};

static struct state *state;
static int initialised;
static uint64_t registered[GPUS];

uint32_t standin_size(void) { return sizeof(struct state); }

static int map(void) {
  if (state) return 1;
  const char *path = getenv("STANDIN_STATE");
  int file = path ? open(path, O_RDWR) : -1;
  if (file < 0) return 0;
  void *at = mmap(0, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) return 0;
  state = at;
  return 1;
}

static void pause_us(uint32_t us) {
  struct timespec t = {us / 1000000, (us % 1000000) * 1000L};
  nanosleep(&t, 0);
}

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* What every call begins with. */
static int enter(const char *call, int gpu) {
  if (!map()) return 9;
  state->calls++;
  for (uint32_t i = 0; i < state->rules && i < RULES; i++) {
    struct rule *r = &state->rule[i];
    if ((r->gpu != -1 && r->gpu != gpu) || strcmp(r->call, call)) continue;
    if (r->delay_us) pause_us(r->delay_us);
    if (r->code) return r->code;
  }
  if (state->generation != GENERATION) return REPLACED;
  if (gpu >= 0 && state->gpu[gpu].code) return state->gpu[gpu].code;
  return SUCCESS;
}

static int place(const void *handle) {
  const char *at = handle;
  return (int)((at - (const char *)state->gpu) / (long)sizeof(struct gpu));
}

static int is_mig(const void *handle) {
  return ((const char *)handle - (const char *)state->gpu) % sizeof(struct gpu) != 0;
}

#define BEGIN(handle) \
  if (!initialised) return UNINITIALIZED; \
  int code = enter(__func__, place(handle)); \
  if (code) return code; \
  struct gpu *g = &state->gpu[place(handle)]; \
  (void)g
#define READ(name, member) int name(void *h, unsigned *out) { BEGIN(h); *out = g->member; return SUCCESS; }
#define READ64(name, member) int name(void *h, uint64_t *out) { BEGIN(h); *out = g->member; return SUCCESS; }
#define TEXT(name, member) \
  int name(void *h, char *out, unsigned size) { BEGIN(h); strncpy(out, g->member, size); return SUCCESS; }

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  int code = enter("nvmlInitWithFlags", -1);
  if (!code) initialised = 1;
  return code;
}
int nvmlShutdown(void) {
  int code = enter(__func__, -1);
  initialised = 0;
  memset(registered, 0, sizeof registered);
  return code;
}
const char *nvmlErrorString(int code) { (void)code; return "stand-in error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  int code = enter(__func__, -1);
  if (!code) strncpy(out, state->driver, size);
  return code;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
  int code = initialised ? enter(__func__, -1) : UNINITIALIZED;
  if (!code) *out = state->count;
  return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
  if (!initialised) return UNINITIALIZED;
  int code = enter(__func__, (int)index);
  if (code) return code;
  if (index >= state->count) return INVALID;
  *out = &state->gpu[index];
  return SUCCESS;
}
TEXT(nvmlDeviceGetUUID, uuid)
TEXT(nvmlDeviceGetName, name)
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *h, struct pci *out) {
  BEGIN(h);
  memset(out, 0, sizeof *out);
  memcpy(out->bus_id, g->bus, 31);
  return SUCCESS;
}
READ(nvmlDeviceGetPersistenceMode, persistence)
int nvmlDeviceGetClockInfo(void *h, unsigned clock, unsigned *out) {
  BEGIN(h);
  *out = clock == 2 ? g->memory_clock : g->sm;
  return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(void *h, unsigned clock, unsigned *out) {
  BEGIN(h);
  *out = clock == 2 ? g->memory_clock_max : g->sm_max;
  return SUCCESS;
}
READ64(nvmlDeviceGetCurrentClocksEventReasons, reasons)
READ64(nvmlDeviceGetSupportedClocksEventReasons, reasons_known)
struct temperature { unsigned version, sensor; int value; };
#ifndef WITHOUT_TEMPERATURE_V
int nvmlDeviceGetTemperatureV(void *h, struct temperature *out) {
  BEGIN(h);
  if (out->version != 0x0100000C) return VERSION;
  out->value = g->temperature;
  return SUCCESS;
}
#endif
int nvmlDeviceGetTemperature(void *h, unsigned sensor, unsigned *out) {
  (void)sensor;
  BEGIN(h);
  *out = (unsigned)g->temperature;
  return SUCCESS;
}
struct margin { unsigned version; int value; };
int nvmlDeviceGetMarginTemperature(void *h, struct margin *out) {
  BEGIN(h);
  out->value = g->margin;
  return SUCCESS;
}
int nvmlDeviceGetTemperatureThreshold(void *h, unsigned which, unsigned *out) {
  BEGIN(h);
  if (which > 2 || !g->threshold[which]) return UNSUPPORTED;
  *out = g->threshold[which];
  return SUCCESS;
}
READ(nvmlDeviceGetPowerUsage, power)
READ(nvmlDeviceGetEnforcedPowerLimit, limit)
READ(nvmlDeviceGetPowerManagementDefaultLimit, default_limit)
READ64(nvmlDeviceGetTotalEnergyConsumption, energy)
int nvmlDeviceGetUtilizationRates(void *h, unsigned out[2]) {
  BEGIN(h);
  if (g->mig_on) return UNSUPPORTED;
  out[0] = g->busy;
  out[1] = g->memory_busy;
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *h, uint64_t out[3]) {
  BEGIN(h);
  if (is_mig(h)) {
    struct mig *m = h;
    out[0] = m->total; out[1] = m->total - m->used; out[2] = m->used;
  } else {
    out[0] = g->total; out[1] = g->free; out[2] = g->used;
  }
  return SUCCESS;
}
struct memory { unsigned version; uint64_t total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *h, struct memory *out) {
  BEGIN(h);
  if (out->version != 0x02000028) return VERSION;
  out->total = g->total; out->reserved = g->reserved; out->free = g->free; out->used = g->used;
  return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(void *h, unsigned kind, unsigned lifetime, uint64_t *out) {
  BEGIN(h);
  if (kind > 1 || lifetime > 1) return INVALID;
  *out = g->ecc[kind][lifetime];
  return SUCCESS;
}
int nvmlDeviceGetRemappedRows(void *h, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
  BEGIN(h);
  *a = g->remap[0]; *b = g->remap[1]; *c = g->remap[2]; *d = g->remap[3];
  return SUCCESS;
}
READ(nvmlDeviceGetCurrPcieLinkWidth, width)
READ(nvmlDeviceGetMaxPcieLinkWidth, width_max)
READ(nvmlDeviceGetCurrPcieLinkGeneration, generation)
READ(nvmlDeviceGetMaxPcieLinkGeneration, generation_max)
READ(nvmlDeviceGetPcieReplayCounter, replays)
int nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *out) {
  BEGIN(h);
  if (!g->links) return UNSUPPORTED;
  if (link >= g->links) return INVALID;
  *out = g->links_up >> link & 1;
  return SUCCESS;
}
int nvmlDeviceGetCpuAffinity(void *h, unsigned size, uint64_t *out) {
  BEGIN(h);
  for (unsigned i = 0; i < size; i++) out[i] = i < 16 ? g->cpus[i] : 0;
  return SUCCESS;
}
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *pending) {
  BEGIN(h);
  *now = *pending = g->mig_on;
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *out) { BEGIN(h); *out = MIGS; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **out) {
  BEGIN(h);
  if (index >= g->migs) return NOT_FOUND;
  *out = &g->mig[index];
  return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(void *h, unsigned *out) { BEGIN(h); *out = ((struct mig *)h)->gi; return 0; }
int nvmlDeviceGetComputeInstanceId(void *h, unsigned *out) { BEGIN(h); *out = ((struct mig *)h)->ci; return 0; }

struct info { unsigned pid; uint64_t memory; unsigned gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, struct info *out) {
  BEGIN(h);
  unsigned room = *count, found = 0;
  /* One without memory stands for a pid that only the utilisation call names. */
  for (unsigned i = 0; i < g->processes; i++) {
    if (!g->process[i].memory) continue;
    if (found < room) out[found] = (struct info){g->process[i].pid, g->process[i].memory, ~0u, ~0u};
    found++;
  }
  *count = found;
  return found > room ? SIZE : SUCCESS;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *h, unsigned *count, struct info *out) {
  (void)out;
  BEGIN(h);
  *count = 0;
  return SUCCESS;
}
struct sample { unsigned pid; uint64_t time; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(void *h, struct sample *out, unsigned *count, uint64_t since) {
  BEGIN(h);
  if (g->mig_on) return UNSUPPORTED;
  if (!out) {
    /* The size of the driver's buffer, not how many there are; an idle GPU answers that it succeeded. */
    *count = g->processes ? 100 : 0;
    return g->processes ? SIZE : SUCCESS;
  }
  unsigned found = 0;
  for (unsigned i = 0; i < g->processes && found < *count; i++) {
    struct process *p = &g->process[i];
    uint64_t when = p->sampled ? p->sampled : now_us();
    if (p->sm && when > since) out[found++] = (struct sample){p->pid, when, p->sm, 0, 0, 0};
  }
  *count = found;
  return found ? SUCCESS : NOT_FOUND;
}

struct value { unsigned id, scope; int64_t time, latency; unsigned type, code; uint64_t bits; };
int nvmlDeviceGetFieldValues(void *h, int count, struct value *out) {
  BEGIN(h);
  for (int i = 0; i < count; i++) {
    out[i].code = UNSUPPORTED;
    for (uint32_t k = 0; k < g->fields && k < FIELDS; k++) {
      if (g->field[k].id != out[i].id) continue;
      out[i].type = g->field[k].type;
      out[i].code = g->field[k].code;
      out[i].bits = g->field[k].bits;
    }
  }
  return SUCCESS;
}

READ64(nvmlDeviceGetSupportedEventTypes, events)
int nvmlEventSetCreate(void **out) {
  static int set;
  int code = enter(__func__, -1);
  *out = &set;
  return code;
}
int nvmlDeviceRegisterEvents(void *h, uint64_t types, void *set) {
  (void)set;
  BEGIN(h);
  registered[place(h)] |= types;
  return SUCCESS;
}
struct data { void *device; uint64_t type, data; unsigned gi, ci; };
int nvmlEventSetWait_v2(void *set, struct data *out, unsigned timeout_ms) {
  (void)set;
  int code = initialised ? enter(__func__, -1) : UNINITIALIZED;
  if (code) return code;
  while (state->tail != state->head) {
    struct event *e = &state->event[state->tail++ % EVENTS];
    if (!(registered[e->gpu] & e->type)) continue;
    *out = (struct data){&state->gpu[e->gpu], e->type, e->data, 0xFFFFFFFF, 0xFFFFFFFF};
    return SUCCESS;
  }
  pause_us(timeout_ms * 1000);
  return TIMEOUT;
}
