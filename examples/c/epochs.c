/* Draws two epochs of shuffled mini-batches from a volume and prints what came.
 *
 *   epochs train.dlfs [BATCH]
 *
 * Without CMake: cc -std=c11 epochs.c $(pkg-config --cflags --libs dlfs) -o epochs */
#include <dlfs/dlfs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int fail(const dlfs_error* error) {
  fprintf(stderr, "epochs: %s\n", error->message);
  return 1;
}

static double now_s(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Looks at every byte, as a decoder would. */
static uint64_t sum_of(const unsigned char* bytes, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; ++i) sum += bytes[i];
  return sum;
}

static int draw(const dlfs_volume* volume, uint32_t batch_size) {
  dlfs_error error;
  dlfs_sequence* sequence = dlfs_sequence_open(volume, &(dlfs_order){.seed = 1, .epochs = 2}, &error);
  if (sequence == NULL) return fail(&error);
  uint64_t samples = 0, bytes = 0, sum = 0;
  const double start_s = now_s();
  dlfs_batch* batch;
  while ((batch = dlfs_bread(sequence, batch_size, &error)) != NULL) {
    if (dlfs_batch_number(batch) == 0 && dlfs_batch_size(batch) > 0) {
      printf("epoch %" PRIu64 " begins with sample %" PRIu32 "\n", dlfs_batch_epoch(batch), dlfs_batch_ids(batch)[0]);
    }
    for (size_t i = 0; i < dlfs_batch_size(batch); ++i) {
      size_t size;
      const unsigned char* field = dlfs_batch_field(batch, i, 0, &size); /* a view: nothing was copied */
      sum += sum_of(field, size);
      bytes += size;
      ++samples;
    }
    dlfs_batch_release(batch);
  }
  dlfs_sequence_close(sequence);
  if (error.code != DLFS_OK) return fail(&error);
  printf("%" PRIu64 " samples, %" PRIu64 " bytes, sum %" PRIu64 ", in %.3f s\n", samples, bytes, sum,
         now_s() - start_s);
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: epochs VOLUME [BATCH]\n");
    return 2;
  }
  dlfs_error error;
  dlfs_volume* volume = dlfs_mount(argv[1], NULL, &error);
  if (volume == NULL) return fail(&error);
  printf("%" PRIu64 " samples of (%s)\n", dlfs_sample_count(volume), dlfs_schema_text(volume));
  const unsigned long batch = argc == 3 ? strtoul(argv[2], NULL, 10) : 256;
  const int status = draw(volume, (uint32_t)batch);
  dlfs_unmount(volume);
  return status;
}
