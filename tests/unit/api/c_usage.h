/* Uses of dlfs.h as C writes them, called by c_test.cc. */
#ifndef DLFS_TESTS_C_USAGE_H
#define DLFS_TESTS_C_USAGE_H

#include "dlfs/dlfs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The call of the header's own example: chunk order, rank 0 of 4. */
dlfs_sequence* c_open_quarter(const dlfs_volume* volume, dlfs_error* error);

/* Draws what is left; counts samples and batches. Returns the error code that it ended with. */
int c_drain(dlfs_sequence* sequence, uint32_t batch, uint64_t* samples, uint64_t* batches);

#ifdef __cplusplus
}
#endif

#endif
