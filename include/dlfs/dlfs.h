/* DLFS for C11: mount a volume, read samples by id or name, draw random mini-batches, pack new volumes.
 *
 *   dlfs_error error;
 *   dlfs_volume* v = dlfs_mount("train.dlfs", NULL, &error);
 *   dlfs_sequence* s = dlfs_sequence_open(v, &(dlfs_order){.seed = 1, .mode = DLFS_CHUNK, .ranks = 4}, &error);
 *   dlfs_batch* b;
 *   while ((b = dlfs_bread(s, 256, &error)) != NULL) { use(b); dlfs_batch_release(b); }
 *   if (error.code != DLFS_OK) fprintf(stderr, "%s\n", error.message);
 *
 * Rules for every function, unless its comment says otherwise:
 *
 * Errors: A failure returns NULL (pointers) or -1 (integers) and describes itself in *error; success clears *error.
 *   `error` may be NULL. A NULL or impossible argument is INVALID_ARGUMENT, never a crash; lack of memory is
 *   OUT_OF_MEMORY. Functions without an `error` parameter cannot fail: on NULL they give 0 or NULL. The comments name
 *   the codes without their DLFS_E_.
 * Thread: A handle may be used by one thread at a time; volumes and files by any number of threads at once. The
 *   function that gives a handle back may be called on any thread, once no other one uses that handle.
 * Lifetime: What a function returns as a handle is the caller's, who gives it back to the function named with it, once;
 *   that function takes NULL and does nothing. Handles keep alive what they need: a volume may be unmounted while
 * files, sequences and batches of it are still in use. Views (pointers into a handle) are good as long as their handle.
 * Options: Structures are to be zeroed first (a designated initialiser does that); zero in a member means its default,
 *   and NULL for the structure means defaults throughout. `reserved` members stay zero: later versions give them
 *   meanings, so that the size of a structure never changes within one SOVERSION; a library that meets a nonzero one
 *   that it does not know refuses it.
 * Strings: Names are bytes without NUL, less than DLFS_NAME_MAX of them, in no particular encoding. All else is UTF-8.
 * Callbacks: Must return normally: no longjmp, no C++ exception.
 */
#ifndef DLFS_DLFS_H
#define DLFS_DLFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

/* Values of dlfs_error.code. Never renumbered. */
enum {
  DLFS_OK = 0,
  DLFS_E_INVALID_ARGUMENT = 1,    /* makes no sense; the message says what would */
  DLFS_E_NOT_FOUND = 2,           /* no such file, device, sample id or name */
  DLFS_E_EXISTS = 3,              /* the destination holds data, or a name is taken */
  DLFS_E_INCOMPLETE = 4,          /* a pack into this volume was never committed */
  DLFS_E_FOREIGN = 5,             /* not a DLFS volume */
  DLFS_E_UNSUPPORTED_VERSION = 6, /* a DLFS volume of a newer format */
  DLFS_E_CORRUPT = 7,             /* a check failed: the bytes are not what was written */
  DLFS_E_TRUNCATED = 8,           /* the device is shorter than the volume that was written to it */
  DLFS_E_IO = 9,                  /* the device or the operating system failed a read or write */
  DLFS_E_NO_SPACE = 10,           /* device or file system full */
  DLFS_E_READ_ONLY = 11,          /* write to something that cannot be written */
  DLFS_E_TIMED_OUT = 12,          /* a deadline passed */
  DLFS_E_INTERRUPTED = 13,        /* a callback asked to stop */
  DLFS_E_DEVICE_LOST = 14,        /* the device went away */
  DLFS_E_FORKED = 15,             /* the object belongs to the parent process */
  DLFS_E_OUT_OF_MEMORY = 16,      /* no memory, or the memory limit is too small for what was asked */
  DLFS_E_BUSY = 17,               /* somebody else holds it (another packer) */
  DLFS_E_UNSUPPORTED = 18,        /* not on this kernel, device or build */
  DLFS_E_SOURCE_CHANGED = 19,     /* a source changed or could not be read while it was packed */
  DLFS_E_DUPLICATE_NAME = 20,     /* two samples with one name */
  DLFS_E_SCHEMA_MISMATCH = 21     /* a sample does not fit the volume's schema */
};

typedef struct dlfs_error {
  int32_t code;         /* DLFS_OK or DLFS_E_* */
  int32_t errno_value;  /* the errno, where the operating system failed; else 0 */
  uint16_t nvme_status; /* the NVMe status field, where a controller failed a command; else 0 */
  uint16_t reserved;
  char message[1012]; /* one sentence with a NUL, empty on success; one too long is cut and ends in "..." */
} dlfs_error;

/* "not found" for DLFS_E_NOT_FOUND, "ok" for DLFS_OK, "unknown" for no code.
 * Thread: any. Lifetime: static storage. */
const char* dlfs_code_name(int32_t code);

/* The library's version, "0.1.0". Thread: any. Lifetime: static storage. */
const char* dlfs_version(void);

/* ---- volumes ---- */

typedef struct dlfs_volume dlfs_volume;

typedef struct dlfs_options {
  uint32_t timeout_ms; /* for each request to a device; 0: 30,000 */
  bool buffered;       /* go through the page cache instead of around it */
  uint64_t reserved[6];
} dlfs_options;

/* Mounts the volume at `url` ("train.dlfs", "file:train.dlfs", "/dev/nvme1n1", "mem:NAME"). Give it back to
 * dlfs_unmount.
 * Blocks: for one sequential read of the superblock and index. Thread: any.
 * Errors: NOT_FOUND, FOREIGN, INCOMPLETE, UNSUPPORTED_VERSION, TRUNCATED, CORRUPT, IO, TIMED_OUT; the message says
 *   what is wrong where.
 * fork: a child may go on using the volume; it opens the device anew. Sequences are the parent's (FORKED). */
dlfs_volume* dlfs_mount(const char* url, const dlfs_options* options, dlfs_error* error);

/* Gives the volume back.
 * Thread: any, but no other thread may be using this handle. Does not invalidate files, sequences and batches. */
void dlfs_unmount(dlfs_volume* volume);

/* How many samples it holds; their ids are 0 to that less 1. Thread: any. */
uint64_t dlfs_sample_count(const dlfs_volume* volume);

/* The id of the sample of this name. The name is confirmed on the volume: a hash collision never gives another
 * sample.
 * Blocks: one read. Thread: any. Errors: NOT_FOUND, CORRUPT, IO, TIMED_OUT. */
int64_t dlfs_find(const dlfs_volume* volume, const char* name, dlfs_error* error);

enum { DLFS_NAME_MAX = 4096 }; /* bytes that hold any name with its NUL */

/* Copies the name of sample `id` with a NUL into `buffer` and returns its length without the NUL. When that does not
 * fit into `size` bytes, nothing but an empty string is written: names are never cut. A volume packed without names
 * gives empty ones. `buffer` may be NULL where size is 0.
 * Blocks: one read. Thread: any. Errors: NOT_FOUND (no such id), CORRUPT, IO, TIMED_OUT. */
int64_t dlfs_name(const dlfs_volume* volume, uint32_t id, char* buffer, size_t size, dlfs_error* error);

/* Calls `visit` with the name of every sample from id `first` on, in id order, until it returns false (no error). The
 * name is good during the call. Returns 0.
 * Blocks: reads all names sequentially. Thread: any; `visit` is called on this one.
 * Errors: NOT_FOUND (first is behind the last sample), CORRUPT, IO, TIMED_OUT. */
int dlfs_names(const dlfs_volume* volume, uint32_t first, bool (*visit)(void* context, uint32_t id, const char* name),
               void* context, dlfs_error* error);

/* ---- schema ---- */

enum { DLFS_BYTES = 0, DLFS_TEXT = 1, DLFS_TENSOR = 2 };

typedef struct dlfs_field_info {
  const char* name;
  const char* dtype;     /* DLFS_TENSOR: NumPy's name, "int64"; else "" */
  const uint64_t* shape; /* DLFS_TENSOR: `dimensions` numbers; 0 of them is a scalar */
  uint32_t dimensions;
  int32_t kind; /* DLFS_BYTES, DLFS_TEXT or DLFS_TENSOR */
  uint64_t reserved[4];
} dlfs_field_info;

/* How many fields each sample has. Thread: any. */
size_t dlfs_schema_fields(const dlfs_volume* volume);

/* Describes field number `field` in *info. Returns 0.
 * Thread: any. Lifetime: the pointers in *info are good as long as the volume.
 * Errors: INVALID_ARGUMENT (no such field). */
int dlfs_schema_field(const dlfs_volume* volume, size_t field, dlfs_field_info* info, dlfs_error* error);

/* The number of the field of this name, or -1. Thread: any. */
int dlfs_schema_find(const dlfs_volume* volume, const char* name);

/* The schema as text: "image: bytes, label: int64". Thread: any. Lifetime: as the volume. */
const char* dlfs_schema_text(const dlfs_volume* volume);

/* The attribute `key` of the data set, or NULL when it has none of that name; its length in *size (may be NULL). A
 * NUL follows the value, which may hold others: "classes" is a list of names with NUL between them.
 * Thread: any. Lifetime: as the volume. */
const char* dlfs_schema_attribute(const dlfs_volume* volume, const char* key, size_t* size);

/* ---- facts about a volume ---- */

typedef struct dlfs_volume_info { /* sizes in bytes */
  uint64_t generation, samples, chunk_bytes, chunks, device_bytes;
  uint64_t payload_bytes, record_bytes, padding_bytes, index_bytes, name_bytes, schema_bytes;
  uint64_t directory_bytes; /* resident in memory */
  uint64_t created_unix_s;
  double mount_s;
  const char *url, *volume_id, *writer, *engine, *page_kind, *notes; /* good as long as the handle that was asked */
  uint64_t reserved[8];
} dlfs_volume_info;

/* Fills *info. Returns 0. Thread: any. Lifetime: the strings are good as long as the volume. */
int dlfs_stat(const dlfs_volume* volume, dlfs_volume_info* info, dlfs_error* error);

typedef struct dlfs_finding {
  const char *what, *name, *message; /* good during the call; name is escaped, empty when unknown */
  int64_t id;                        /* of the bad sample, or -1 */
  uint64_t chunk, device_offset;
  uint64_t reserved[4];
} dlfs_finding;

typedef struct dlfs_verify_report {
  uint64_t samples, bytes, bad_samples, bad_chunks, findings;
  uint64_t reserved[4];
} dlfs_verify_report;

/* Reads every byte of the volume and checks it. `found` (may be NULL) is called for everything that is not as it was
 * written, `progress` (may be NULL) now and then with the bytes done and the bytes in all; false from it stops.
 * Returns 0 when all was read, however much was found: look at report->findings.
 * Blocks: long. Thread: any; callbacks are called on this one. Errors: INTERRUPTED, DEVICE_LOST. */
int dlfs_verify(const dlfs_volume* volume, void (*found)(void* context, const dlfs_finding* finding),
                bool (*progress)(void* context, uint64_t done_bytes, uint64_t all_bytes), void* context,
                dlfs_verify_report* report, dlfs_error* error);

/* ---- files: one field of one sample, read in parts ---- */

typedef struct dlfs_file dlfs_file;

/* Opens the first field of the sample of this name. Give it back to dlfs_close.
 * Blocks: two reads. Thread: any. Errors: as dlfs_find and dlfs_open_id. */
dlfs_file* dlfs_open(const dlfs_volume* volume, const char* name, dlfs_error* error);

/* Opens field number `field` of sample `id`. Give it back to dlfs_close.
 * Blocks: one read. Thread: any.
 * Errors: NOT_FOUND (no such id), INVALID_ARGUMENT (no such field), CORRUPT (names sample, device and address), IO,
 *   TIMED_OUT. */
dlfs_file* dlfs_open_id(const dlfs_volume* volume, uint32_t id, size_t field, dlfs_error* error);

/* Ends the use of the file. */
void dlfs_close(dlfs_file* file);

/* The sample's id; the field's length in bytes. Thread: any. */
uint32_t dlfs_file_id(const dlfs_file* file);
uint64_t dlfs_file_size(const dlfs_file* file);

/* Copies up to `size` bytes from `offset` on into `buffer` and returns how many: fewer only where the field ends, 0
 * behind the end. Nothing that fails its check is copied. Files have no position: threads do not disturb each other.
 * Blocks: for large samples, until they are read. Thread: any.
 * Errors: CORRUPT (names sample, device and address), IO, TIMED_OUT, DEVICE_LOST. */
int64_t dlfs_read(const dlfs_file* file, void* buffer, size_t size, uint64_t offset, dlfs_error* error);

/* ---- sequences: a rank's walk through shuffled epochs ---- */

typedef struct dlfs_sequence dlfs_sequence;
typedef struct dlfs_batch dlfs_batch;

/* dlfs_order.mode: what is shuffled. */
enum { DLFS_CHUNK = 0, DLFS_FULL = 1, DLFS_SEQUENTIAL = 2 };

/* dlfs_order.tail: what becomes of an epoch's last, smaller batch. */
enum { DLFS_TAIL_SHORT = 0, DLFS_TAIL_DROP = 1, DLFS_TAIL_PAD = 2 };

/* What a bad sample does: fail the call, or be left out and counted. */
enum { DLFS_RAISE = 0, DLFS_SKIP = 1 };

/* dlfs_order.epochs: go on for ever. */
#define DLFS_ENDLESS UINT64_MAX

typedef struct dlfs_order {
  uint64_t seed, epoch; /* the first epoch to draw */
  uint64_t epochs;      /* goes on to the next epochs by itself; 0: one epoch, DLFS_ENDLESS: for ever */
  uint64_t start_batch; /* of the first epoch */
  uint64_t cache_bytes; /* bound on memory for samples; 0: 256 MiB, or more if batches need it */
  int32_t mode, tail, on_error;
  uint32_t rank, ranks;      /* 0 ranks: one */
  uint32_t batch;            /* global batch, over all ranks; 0: what the first dlfs_bread says */
  uint32_t lanes;            /* chunk mode; ranks must divide it; 0: 240 */
  uint32_t window;           /* chunk mode: chunks that a lane shuffles together; 0: 1 */
  uint32_t depth;            /* requests in flight; 0: 128 */
  uint32_t prefetch_batches; /* ready ahead of the consumer; 0: as many as the memory allows */
  uint32_t timeout_ms;       /* dlfs_bread gives TIMED_OUT after it; 0: 24 h (the device's deadlines come first) */
  bool no_verify;            /* for benchmarks only */
  uint64_t reserved[8];
} dlfs_order;

/* Begins a walk. Give it back to dlfs_sequence_close. The order needs the size of the global batch: order->batch, or
 * else the first dlfs_bread, fixes it. Every rank passes the same order but for `rank`, and gets its own share of the
 * same global batches.
 * Thread: any.
 * Errors: INVALID_ARGUMENT (rank, ranks, lanes, ...: the message says which value would do), OUT_OF_MEMORY
 *   (cache_bytes: says how many would do); with batch = 0 those that hang on the batch come from the first dlfs_bread.
 */
dlfs_sequence* dlfs_sequence_open(const dlfs_volume* volume, const dlfs_order* order, dlfs_error* error);

/* Goes on where `state` was taken. The order, with its global batch, comes from the state; rank, ranks, epochs,
 * memory and error options from `options`. With the options of the interrupted walk it ends where that would have; an
 * epoch that is under way is always finished. The number of ranks may differ. Give it back to dlfs_sequence_close.
 * Thread: any. Errors: INVALID_ARGUMENT, CORRUPT (the state), as dlfs_sequence_open. */
dlfs_sequence* dlfs_sequence_resume(const dlfs_volume* volume, const void* state, size_t state_bytes,
                                    const dlfs_order* options, dlfs_error* error);

/* Stops reading ahead. Batches that are out stay valid. */
void dlfs_sequence_close(dlfs_sequence* sequence);

/* The next mini-batch: this rank's share of `batch` samples over all ranks. NULL with error code DLFS_OK: the last
 * epoch is over. Give it back to dlfs_batch_release; until then it keeps its memory out of the cache. The first call
 * fixes `batch` for the walk, unless the order or state did; 0 then means that one, and another number is
 * INVALID_ARGUMENT and draws nothing (begin another sequence to change it).
 * Blocks: until the batch is there. Thread: one consumer.
 * Errors: CORRUPT, IO, DEVICE_LOST (name sample, device and address; come again on the next call), TIMED_OUT (call
 *   again to go on waiting), FORKED. */
dlfs_batch* dlfs_bread(dlfs_sequence* sequence, uint32_t batch, dlfs_error* error);

/* Batches in an epoch, the same for every rank; 0 while the batch size is not known. Thread: the consumer. */
uint64_t dlfs_sequence_batches(const dlfs_sequence* sequence);

/* Where the next batch stands: its epoch and its number within it (either pointer may be NULL).
 * Thread: the consumer. */
void dlfs_sequence_position(const dlfs_sequence* sequence, uint64_t* epoch, uint64_t* batch);

enum { DLFS_STATE_BYTES = 64 }; /* bytes that hold any state */

/* Writes the state of the walk, in front of the next batch, into `into` and returns its length. The state holds for
 * any rank and any number of ranks.
 * Thread: the consumer.
 * Errors: INVALID_ARGUMENT (`size` too small; or the batch size is not known: set dlfs_order.batch or call dlfs_bread
 *   first). */
int64_t dlfs_sequence_state(const dlfs_sequence* sequence, void* into, size_t size, dlfs_error* error);

typedef struct dlfs_percentiles {
  double p50_us, p95_us, p99_us, total_s;
} dlfs_percentiles;

typedef struct dlfs_statistics { /* since the sequence was opened */
  uint64_t samples, batches, payload_bytes, device_bytes, device_requests, cache_hits, skipped, memory_bytes,
      memory_peak_bytes;
  double amplification; /* device bytes to sample bytes */
  double poller_cpu_s;
  dlfs_percentiles wait, device, queue, verify, copy; /* the consumer's waiting, and where it comes from */
  uint64_t reserved[8];
} dlfs_statistics;

/* Fills *statistics; zeros while the batch size is not known. Returns 0. Thread: the consumer. */
int dlfs_sequence_statistics(const dlfs_sequence* sequence, dlfs_statistics* statistics, dlfs_error* error);

/* This rank's ids, batch by batch from start_batch on, for one epoch, reading no sample: `visit` until it returns
 * false (no error). order->batch 0 means 256. Returns 0.
 * Thread: any; `visit` is called on this one. Errors: INVALID_ARGUMENT, as dlfs_sequence_open. */
int dlfs_order_ids(const dlfs_volume* volume, const dlfs_order* order,
                   bool (*visit)(void* context, uint64_t batch, const uint32_t* ids, size_t count), void* context,
                   dlfs_error* error);

/* ---- batches ---- */

/* The samples with these ids, in this order, all read at once. on_error: DLFS_RAISE, or DLFS_SKIP to leave bad ones
 * out. Give it back to dlfs_batch_release.
 * Blocks: until all are read. Thread: any.
 * Errors: NOT_FOUND (no such id), CORRUPT (names sample, device and address), IO, TIMED_OUT. */
dlfs_batch* dlfs_read_ids(const dlfs_volume* volume, const uint32_t* ids, size_t count, int32_t on_error,
                          dlfs_error* error);

/* Ends all views into the batch. Thread: any one. May come after the sequence and the volume are gone. */
void dlfs_batch_release(dlfs_batch* batch);

/* How many samples are in it; its epoch and its number within that (0 from dlfs_read_ids); how many samples at its end
 * are repeats (under DLFS_TAIL_PAD). */
size_t dlfs_batch_size(const dlfs_batch* batch);
uint64_t dlfs_batch_epoch(const dlfs_batch* batch);
uint64_t dlfs_batch_number(const dlfs_batch* batch);
uint32_t dlfs_batch_padding(const dlfs_batch* batch);

/* The ids of its samples, dlfs_batch_size of them. Lifetime: as the batch. */
const uint32_t* dlfs_batch_ids(const dlfs_batch* batch);

/* Field number `field` of sample i: a view of *size bytes, 8-aligned, checked, not copied. NULL without an error
 * parameter: no such sample or field; an empty field is a pointer that is not NULL, with *size 0. `size` may be NULL.
 * Lifetime: as the batch. */
const void* dlfs_batch_field(const dlfs_batch* batch, size_t i, size_t field, size_t* size);

/* Copies one field of all samples back to back into `into` and returns the bytes that takes. When `size` is less,
 * nothing is copied. `offsets`, unless NULL, receives dlfs_batch_size + 1 numbers in any case: where each value
 * begins, and the end. `into` may be NULL where size is 0.
 * Errors: INVALID_ARGUMENT (no such field). */
int64_t dlfs_batch_gather(const dlfs_batch* batch, size_t field, void* into, size_t size, uint64_t* offsets,
                          dlfs_error* error);

/* ---- writers ---- */

typedef struct dlfs_writer dlfs_writer;

typedef struct dlfs_bytes {
  const void* data; /* may be NULL where size is 0 */
  size_t size;
} dlfs_bytes;

typedef struct dlfs_attribute {
  const char* key;
  dlfs_bytes value;
} dlfs_attribute;

typedef struct dlfs_writer_options {
  uint64_t seed;        /* of the placement */
  uint64_t pool_bytes;  /* memory for shuffling the placement; 0: 64 MiB */
  uint32_t chunk_bytes; /* a power of two, 64 KiB to 16 MiB; 0: 256 KiB */
  bool overwrite;       /* the destination may hold a volume or foreign data */
  bool no_shuffle;      /* place samples in the order in which they come */
  bool no_names;
  const dlfs_attribute* attributes; /* facts about the data set; copied */
  size_t attribute_count;
  uint64_t reserved[6];
} dlfs_writer_options;

/* Begins to pack a volume at `url` with samples of the fields that `schema` names: "image: bytes, label: int64, mask:
 * uint8[256,256], caption: text". Nothing is visible there before dlfs_writer_commit. Give it back to
 * dlfs_writer_close.
 * Errors: EXISTS (set overwrite), BUSY (another packer), READ_ONLY, NO_SPACE, INVALID_ARGUMENT (schema: says what is
 *   wrong where), IO. */
dlfs_writer* dlfs_writer_create(const char* url, const char* schema, const dlfs_writer_options* options,
                                dlfs_error* error);

/* Adds the next sample; its id is the number of those before it. `fields` has one value a schema field, in schema
 * order; the bytes are copied. `name` may be NULL with no_names. Returns 0.
 * Errors: SCHEMA_MISMATCH (sample, field, expected and got), INVALID_ARGUMENT (name), NO_SPACE, IO. */
int dlfs_writer_append(dlfs_writer* writer, const char* name, const dlfs_bytes* fields, size_t field_count,
                       dlfs_error* error);

/* Adds sample `id` in whatever order the caller visits them; they are placed in that order. By the commit every id
 * from 0 to the highest must have come once. Not to be mixed with dlfs_writer_append. Returns 0.
 * Errors: as dlfs_writer_append. */
int dlfs_writer_append_at(dlfs_writer* writer, uint32_t id, const char* name, const dlfs_bytes* fields,
                          size_t field_count, dlfs_error* error);

/* As dlfs_writer_append_at for a sample too large to hold: its last bytes or text field, of `length` bytes, is drawn
 * from `source`, which fills each `into` whole and returns true; false stops. `other_fields` are the rest, in schema
 * order. Returns 0.
 * Errors: SOURCE_CHANGED (`source` gave false), as append. */
int dlfs_writer_append_stream_at(dlfs_writer* writer, uint32_t id, const char* name, const dlfs_bytes* other_fields,
                                 size_t other_count, uint64_t length,
                                 bool (*source)(void* context, void* into, size_t size), void* context,
                                 dlfs_error* error);

/* Samples added so far. */
uint64_t dlfs_writer_count(const dlfs_writer* writer);

/* Writes index and superblocks, waits until all is on the device, and makes the volume visible. `info` may be NULL.
 * Nothing but dlfs_writer_close may follow. Returns 0.
 * Lifetime: the strings in *info are good as long as the writer.
 * Errors: DUPLICATE_NAME (names both), NO_SPACE, IO. */
int dlfs_writer_commit(dlfs_writer* writer, dlfs_volume_info* info, dlfs_error* error);

/* Without a commit before it, leaves the destination as it was (file) or marked incomplete (device). */
void dlfs_writer_close(dlfs_writer* writer);

#ifdef __cplusplus
}
#endif

#endif
