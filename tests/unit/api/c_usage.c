#include "c_usage.h"

dlfs_sequence* c_open_quarter(const dlfs_volume* volume, dlfs_error* error) {
  return dlfs_sequence_open(volume, &(dlfs_order){.seed = 1, .mode = DLFS_CHUNK, .rank = 0, .ranks = 4}, error);
}

int c_drain(dlfs_sequence* sequence, uint32_t batch, uint64_t* samples, uint64_t* batches) {
  dlfs_error error;
  dlfs_batch* b;
  *samples = *batches = 0;
  while ((b = dlfs_bread(sequence, batch, &error)) != NULL) {
    *samples += dlfs_batch_size(b);
    ++*batches;
    dlfs_batch_release(b);
  }
  return error.code;
}
