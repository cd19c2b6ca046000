// The side of an MPI library in the comparison. Measures its collectives, and a ring all-reduce over its point-to-point
// messages (A. Gibiansky, "Bringing HPC Techniques to Deep Learning", 2017). The method is that of `xlad bench`: ITERS
// operations between barriers, the maximum over ranks, and the median over BATCHES. Prints a line of JSON for each
// size.
//   mpi_side COLLECTIVE MIN_BYTES MAX_BYTES FACTOR ITERS BATCHES IN_PLACE ROTATE_BYTES
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static float* temporary;

static int Mod(int i) { return (i % ranks + ranks) % ranks; }

// Reduce-scatter and all-gather around a ring, in place in `out`.
static void RingAllReduce(const float* in, float* out, long count) {
  if (in != out) memcpy(out, in, count * sizeof(float));
  const long part = (count + ranks - 1) / ranks;
  for (int phase = 0; phase < 2; ++phase) {
    for (int step = 0; step < ranks - 1; ++step) {
      const int send = Mod(rank - step + phase), receive = Mod(rank - step - 1 + phase);
      const long from = send * part < count ? send * part : count, to = receive * part < count ? receive * part : count;
      const long n = from + part < count ? part : count - from, m = to + part < count ? part : count - to;
      MPI_Sendrecv(out + from, n, MPI_FLOAT, Mod(rank + 1), 0, phase == 0 ? temporary : out + to, m, MPI_FLOAT,
                   Mod(rank - 1), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (long i = 0; phase == 0 && i < m; ++i) out[to + i] += temporary[i];
    }
  }
}

static void Run(const char* what, float* in, float* out, long count, int in_place) {
  const long part = count / ranks;
  if (strcmp(what, "all_reduce") == 0) {
    MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(what, "ring") == 0) {
    RingAllReduce(in_place ? out : in, out, count);
  } else if (strcmp(what, "reduce_scatter") == 0) {
    // In place, MPI takes the input from the receive buffer.
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(what, "all_gather") == 0) {
    MPI_Allgather(in_place ? MPI_IN_PLACE : in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (strcmp(what, "all_to_all") == 0) {
    MPI_Alltoall(in_place ? MPI_IN_PLACE : in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (strcmp(what, "broadcast") == 0) {
    MPI_Bcast(rank == 0 && !in_place ? in : out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (strcmp(what, "reduce") == 0) {
    // In place, MPI takes the input from the receive buffer at the root, and from the send buffer elsewhere.
    MPI_Reduce(!in_place ? in : rank == 0 ? MPI_IN_PLACE : out, out, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  } else {
    fprintf(stderr,
            "mpi_side: found collective %s, expected all_reduce, ring, reduce_scatter, all_gather, all_to_all, "
            "broadcast or reduce\n",
            what);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 9) {
    fprintf(stderr, "usage: mpi_side COLLECTIVE MIN_BYTES MAX_BYTES FACTOR ITERS BATCHES IN_PLACE ROTATE_BYTES\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const char* const what = argv[1];
  const long min = atol(argv[2]), max = atol(argv[3]), factor = atol(argv[4]), rotate = atol(argv[8]);
  const int asked = atoi(argv[5]), batches = atoi(argv[6]), in_place = atoi(argv[7]);
  const int rooted = strcmp(what, "broadcast") == 0 || strcmp(what, "reduce") == 0;
  for (long bytes = min; bytes <= max; bytes *= factor) {
    const long count = bytes / sizeof(float);
    long pairs = rotate / (bytes * (in_place ? 1 : 2));
    if (pairs < 1) pairs = 1;
    if (pairs > 100) pairs = 100;
    float** in = malloc(pairs * sizeof(float*));
    float** out = malloc(pairs * sizeof(float*));
    for (long p = 0; p < pairs; ++p) {
      in[p] = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
      out[p] = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
      for (long i = 0; i < count; ++i) in[p][i] = out[p][i] = (float)((i + rank) % 3);
    }
    temporary = malloc(bytes + 4096);
    memset(temporary, 0, bytes + 4096);
    int iters = asked > 0 ? asked : (64 << 20) / bytes > 20 ? 20 : (int)((64 << 20) / bytes);
    if (iters < 2) iters = 2;
    double* const times = malloc(batches * sizeof(double));
    long done = 0;
    // MPICH changes to its shared-memory algorithms after the fifth call.
    for (int i = 0; i < 8; ++i) Run(what, in[i % pairs], out[i % pairs], count, in_place);
    for (int batch = 0; batch < batches; ++batch) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      for (int i = 0; i < iters; ++i, ++done) {
        Run(what, in[done % pairs], out[done % pairs], count, in_place);
        if (rooted) MPI_Barrier(MPI_COMM_WORLD);
      }
      times[batch] = (MPI_Wtime() - start) / iters * 1e6;
    }
    MPI_Allreduce(MPI_IN_PLACE, times, batches, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    double sum = 0;
    for (int batch = 0; batch < batches; ++batch) sum += times[batch];
    qsort(times, batches, sizeof(double), Compare);
    if (rank == 0) {
      printf("{\"bytes\": %ld, \"mean_us\": %.4f, \"median_us\": %.4f, \"p99_us\": %.4f}\n", bytes, sum / batches,
             times[batches / 2], times[batches * 99 / 100]);
      fflush(stdout);
    }
    for (long p = 0; p < pairs; ++p) {
      free(in[p]);
      free(out[p]);
    }
    free(in);
    free(out);
    free(temporary);
    free(times);
  }
  MPI_Finalize();
  return 0;
}
