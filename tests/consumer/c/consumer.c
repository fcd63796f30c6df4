/* A program of somebody else's, built against an installed DLFS: packs 100 samples, mounts them, opens one by name,
 * reads it, draws two epochs. */
#include <dlfs/dlfs.h>
#include <stdio.h>
#include <string.h>

enum { kSamples = 100, kMaxBytes = 400 };

static void make_name(uint32_t id, char* name, size_t size) {
  snprintf(name, size, "class%u/%u.bin", (unsigned)(id % 10), (unsigned)id);
}

static size_t make_sample(uint32_t id, unsigned char* bytes) {
  const size_t size = 3 * id;
  for (size_t i = 0; i < size; ++i) bytes[i] = (unsigned char)(id * 7 + i);
  return size;
}

static int complain(const char* what, const dlfs_error* error) {
  fprintf(stderr, "consumer: %s: %s (%s)\n", what, error->message, dlfs_code_name(error->code));
  return 1;
}

static int pack(const char* path, dlfs_error* error) {
  dlfs_writer* writer = dlfs_writer_create(path, "data: bytes, label: int64", NULL, error);
  if (writer == NULL) return complain("create", error);
  int status = 0;
  for (uint32_t id = 0; status == 0 && id < kSamples; ++id) {
    char name[64];
    unsigned char bytes[kMaxBytes];
    const int64_t label = id % 10;
    make_name(id, name, sizeof name);
    const dlfs_bytes fields[] = {{bytes, make_sample(id, bytes)}, {&label, sizeof label}};
    status = dlfs_writer_append(writer, name, fields, 2, error);
  }
  if (status == 0) status = dlfs_writer_commit(writer, NULL, error);
  dlfs_writer_close(writer);
  return status == 0 ? 0 : complain("pack", error);
}

static int read_by_name(const dlfs_volume* volume, uint32_t id, dlfs_error* error) {
  char name[64];
  unsigned char expected[kMaxBytes], got[kMaxBytes];
  make_name(id, name, sizeof name);
  const size_t size = make_sample(id, expected);
  dlfs_file* file = dlfs_open(volume, name, error);
  if (file == NULL) return complain(name, error);
  const int64_t read = dlfs_read(file, got, sizeof got, 0, error);
  dlfs_close(file);
  if (read < 0) return complain(name, error);
  if ((size_t)read == size && memcmp(got, expected, size) == 0) return 0;
  fprintf(stderr, "consumer: %s came back changed\n", name);
  return 1;
}

static int check_batch(const dlfs_batch* batch, unsigned* seen) {
  for (size_t i = 0; i < dlfs_batch_size(batch); ++i) {
    const uint32_t id = dlfs_batch_ids(batch)[i];
    unsigned char expected[kMaxBytes];
    size_t size, label_size;
    int64_t label;
    const void* data = dlfs_batch_field(batch, i, 0, &size);
    const void* label_bytes = dlfs_batch_field(batch, i, 1, &label_size);
    if (id >= kSamples || size != make_sample(id, expected) || memcmp(data, expected, size) != 0) return 1;
    if (label_size != sizeof label) return 1;
    memcpy(&label, label_bytes, sizeof label);
    if (label != id % 10) return 1;
    ++seen[id];
  }
  return 0;
}

static int two_epochs(const dlfs_volume* volume, dlfs_error* error) {
  const dlfs_order order = {.seed = 1, .mode = DLFS_CHUNK, .rank = 0, .ranks = 1, .epochs = 2};
  dlfs_sequence* sequence = dlfs_sequence_open(volume, &order, error);
  if (sequence == NULL) return complain("sequence", error);
  unsigned seen[kSamples] = {0};
  dlfs_batch* batch;
  int bad = 0;
  while ((batch = dlfs_bread(sequence, 32, error)) != NULL) {
    bad |= check_batch(batch, seen);
    dlfs_batch_release(batch);
  }
  dlfs_sequence_close(sequence);
  if (error->code != DLFS_OK) return complain("bread", error);
  for (int id = 0; id < kSamples; ++id) bad |= seen[id] != 2;
  if (bad) fprintf(stderr, "consumer: two epochs did not hold every sample twice, unchanged\n");
  return bad;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  dlfs_error error;
  if (pack(argv[1], &error) != 0) return 1;
  dlfs_volume* volume = dlfs_mount(argv[1], NULL, &error);
  if (volume == NULL) return complain("mount", &error);
  int status = dlfs_sample_count(volume) != kSamples;
  for (uint32_t id = 0; id < kSamples; ++id) status |= read_by_name(volume, id, &error);
  status |= two_epochs(volume, &error);
  dlfs_unmount(volume);
  if (status == 0) printf("consumer: all well with dlfs %s\n", dlfs_version());
  return status;
}
