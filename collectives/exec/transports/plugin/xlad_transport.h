/* The binary interface of a transport that is a shared object: messages between devices by a library that xlad itself
 * does not link (UCX, MPI). xlad loads libxlad_transport_NAME.so and calls its function xlad_transport.
 *
 * An engine belongs to one device of this process. A peer is a device of another process. Messages between two devices
 * have a stream (0 or 1). Those of one stream arrive in the order in which they were posted. Each one is received by
 * the oldest posted receive of its peer and stream.
 *
 * Threads: xlad serializes all calls for one engine; calls for different engines may be concurrent. No function waits
 * for a peer, except `close` and `disconnect`.
 * Ownership: memory of a posted operation is borrowed until its request has ended: until `test` has returned something
 * other than XLAD_TRANSPORT_PENDING, or `disconnect` of its peer has returned. With XLAD_TRANSPORT_KEEPS_MEMORY,
 * `disconnect` does not end the loan: xlad lends such a library only memory of its own, and leaves it allocated.
 * Errors: a function that can fail takes an xlad_transport_error and fills it in. After an error of an operation, its
 * peer is only disconnected.
 */
#ifndef XLAD_TRANSPORT_H_
#define XLAD_TRANSPORT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every incompatible change of this file. */
#define XLAD_TRANSPORT_ABI 1

enum {
  XLAD_TRANSPORT_OK = 0,
  XLAD_TRANSPORT_PENDING = 1,
  XLAD_TRANSPORT_FAILED = 2,      /* A use that cannot work, or a failure of the library. */
  XLAD_TRANSPORT_PEER_LOST = 3,   /* The process of the peer has ended or cannot be reached. */
  XLAD_TRANSPORT_UNSUPPORTED = 4, /* The library, or the way in which this process was started, does not allow it. */
};

/* Flags of a plugin. */
enum { XLAD_TRANSPORT_KEEPS_MEMORY = 1 };

/* Kinds of memory. */
enum { XLAD_TRANSPORT_HOST = 0, XLAD_TRANSPORT_PINNED = 1, XLAD_TRANSPORT_DEVICE = 2 };

typedef struct xlad_transport_error {
  char text[512]; /* Ends with a zero; names the call of the library that failed. */
} xlad_transport_error;

typedef struct xlad_transport_options {
  uint32_t struct_bytes; /* sizeof(xlad_transport_options) */
  int32_t device;        /* The device that the engine is for: its position in the mesh, or its rank. */
  int32_t any_network;   /* 0: only memory of this host and the loopback interface may be used. */
} xlad_transport_options;

typedef struct xlad_transport_engine xlad_transport_engine;
typedef struct xlad_transport_peer xlad_transport_peer;
typedef struct xlad_transport_request xlad_transport_request;

/* The device of a peer, and the bytes that `address` of its engine has returned. */
typedef struct xlad_transport_target {
  int32_t device;
  const void* address;
  size_t bytes;
} xlad_transport_target;

/* A message to send, or memory for one to receive (`to`). */
typedef struct xlad_transport_message {
  xlad_transport_peer* peer;
  int32_t stream;
  const void* data;
  void* to;
  size_t bytes;
} xlad_transport_message;

typedef struct xlad_transport_memory {
  void* data;
  size_t bytes;
  int32_t kind; /* XLAD_TRANSPORT_HOST, ... */
} xlad_transport_memory;

typedef struct xlad_transport_api {
  uint32_t abi;          /* XLAD_TRANSPORT_ABI */
  uint32_t struct_bytes; /* sizeof(xlad_transport_api) */
  uint32_t flags;
  const char* name;      /* "ucx" */
  const char* library;   /* What carries the messages, with its version, for messages: "UCX 1.13.1". */

  int (*open)(const xlad_transport_options* options, xlad_transport_engine** engine, xlad_transport_error* error);
  /* Ends the engine, whose peers have been disconnected. */
  void (*close)(xlad_transport_engine* engine);

  /* The bytes that a peer passes to `connect`. They belong to the engine. */
  int (*address)(xlad_transport_engine* engine, const void** data, size_t* bytes, xlad_transport_error* error);
  /* Both sides connect to each other, in any order, once. */
  int (*connect)(xlad_transport_engine* engine, const xlad_transport_target* target, xlad_transport_peer** peer,
                 xlad_transport_error* error);
  /* Ends all operations with the peer. Afterwards the peer and its requests do not exist. What was posted first has up
   * to `flush_ms` milliseconds to leave this process; the rest is lost. */
  void (*disconnect)(xlad_transport_engine* engine, xlad_transport_peer* peer, int32_t flush_ms);

  /* Starts to send or to receive a message. XLAD_TRANSPORT_OK: it has ended already, and there is no request.
   * XLAD_TRANSPORT_PENDING: *request is set. A received message has exactly `bytes` bytes, or at most `bytes` on
   * stream 0. *received is set if the receive has ended. */
  int (*post)(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
              xlad_transport_error* error);
  int (*post_receive)(xlad_transport_engine* engine, const xlad_transport_message* message,
                      xlad_transport_request** request, size_t* received, xlad_transport_error* error);
  /* Whether a request has ended; if it has, it does not exist any more. After an error, `disconnect` ends it.
   * `received` is set for receives; it may be NULL for sends. */
  int (*test)(xlad_transport_engine* engine, xlad_transport_request* request, size_t* received,
              xlad_transport_error* error);
  /* Makes progress without waiting. Returns whether there was any. */
  int (*progress)(xlad_transport_engine* engine);

  /* Prepares memory for faster transfers; both are NULL if the library needs no such thing. */
  int (*register_memory)(xlad_transport_engine* engine, const xlad_transport_memory* memory, void** handle,
                         xlad_transport_error* error);
  void (*unregister_memory)(xlad_transport_engine* engine, void* handle);

  /* Ends the library when the process ends in good order and all engines are closed; NULL if that is not needed. A
   * plugin must work without this call too. */
  void (*end_process)(void);
} xlad_transport_api;

/* The one function that a plugin exports. The table exists until the process ends. */
const xlad_transport_api* xlad_transport(void);
typedef const xlad_transport_api* (*xlad_transport_function)(void);

#ifdef __cplusplus
}
#endif
#endif /* XLAD_TRANSPORT_H_ */
