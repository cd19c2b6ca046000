/* The binary interface of a transport plugin: a shared object that sends messages between devices through a library
 * that xlad itself does not link (UCX, MPI). xlad loads libxlad_transport_NAME.so and calls its function
 * xlad_transport.
 *
 * An engine belongs to one device of this process. A peer is a device of another process. Messages between two devices
 * have a stream (0 or 1). The messages of one stream arrive in the order in which they were posted. Each is received by
 * the oldest posted receive of its peer and stream.
 *
 * Threads: xlad serializes all calls for one engine; calls for different engines may be concurrent. No function waits
 * for a peer, except `close` and `disconnect`.
 * Ownership: memory of a posted operation is borrowed until its request has ended: until `test` has returned a result
 * other than XLAD_TRANSPORT_PENDING, or `disconnect` of its peer has returned. With XLAD_TRANSPORT_KEEPS_MEMORY, the
 * memory is borrowed even after `disconnect`: xlad passes only its own memory to such a library, and leaves the memory
 * allocated.
 * Errors: a function that can fail takes an xlad_transport_error and fills it in. After an error of an operation,
 * xlad calls only `disconnect` for its peer.
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
  XLAD_TRANSPORT_FAILED = 2,      /* The call was invalid, or the library failed. */
  XLAD_TRANSPORT_PEER_LOST = 3,   /* The process of the peer has ended or cannot be reached. */
  XLAD_TRANSPORT_UNSUPPORTED = 4, /* The library, or how this process was started, does not allow the call. */
};

/* Flags of a plugin. */
enum { XLAD_TRANSPORT_KEEPS_MEMORY = 1 };

/* Kinds of memory. */
enum { XLAD_TRANSPORT_HOST = 0, XLAD_TRANSPORT_PINNED = 1, XLAD_TRANSPORT_DEVICE = 2 };

typedef struct xlad_transport_error {
  char text[512]; /* What failed, such as a call of the library, and why; null-terminated. */
} xlad_transport_error;

typedef struct xlad_transport_options {
  uint32_t struct_bytes; /* sizeof(xlad_transport_options) */
  int32_t device;        /* The device of the engine: its position in the mesh, or its rank. */
  int32_t any_network;   /* If 0, only memory of this host and the loopback interface may be used. */
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

/* A message to send (`data`), or memory for a message to receive (`to`). */
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
  int32_t kind; /* One of XLAD_TRANSPORT_HOST, XLAD_TRANSPORT_PINNED and XLAD_TRANSPORT_DEVICE. */
} xlad_transport_memory;

typedef struct xlad_transport_api {
  uint32_t abi;          /* XLAD_TRANSPORT_ABI */
  uint32_t struct_bytes; /* sizeof(xlad_transport_api) */
  uint32_t flags;
  const char* name;    /* "ucx" */
  const char* library; /* The library and its version, for error messages: "UCX 1.13.1". */

  int (*open)(const xlad_transport_options* options, xlad_transport_engine** engine, xlad_transport_error* error);
  /* Destroys the engine. All its peers must have been disconnected. */
  void (*close)(xlad_transport_engine* engine);

  /* Returns the bytes that a peer passes to `connect`. They belong to the engine. */
  int (*address)(xlad_transport_engine* engine, const void** data, size_t* bytes, xlad_transport_error* error);
  /* Must be called once on each side of a connection, in any order. */
  int (*connect)(xlad_transport_engine* engine, const xlad_transport_target* target, xlad_transport_peer** peer,
                 xlad_transport_error* error);
  /* Ends all operations with the peer and destroys the peer and its requests. Messages that were posted before have up
   * to `flush_ms` milliseconds to leave this process; the others are lost. If the library cannot end an operation, the
   * plugin may stop the engine: operations with its other peers then fail. */
  void (*disconnect)(xlad_transport_engine* engine, xlad_transport_peer* peer, int32_t flush_ms);

  /* Starts to send or to receive a message. Returns XLAD_TRANSPORT_OK if it has already ended; there is then no
   * request. Otherwise returns XLAD_TRANSPORT_PENDING and sets *request. A received message has exactly `bytes` bytes,
   * or on stream 0 at most `bytes` bytes. *received is set if the receive has ended. */
  int (*post)(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
              xlad_transport_error* error);
  int (*post_receive)(xlad_transport_engine* engine, const xlad_transport_message* message,
                      xlad_transport_request** request, size_t* received, xlad_transport_error* error);
  /* Returns XLAD_TRANSPORT_PENDING if the request has not ended. If it has ended, destroys it and returns
   * XLAD_TRANSPORT_OK. After an error, xlad does not use it again, and `disconnect` destroys it if it still exists.
   * *received is set if a receive has ended; `received` may be NULL for sends. */
  int (*test)(xlad_transport_engine* engine, xlad_transport_request* request, size_t* received,
              xlad_transport_error* error);
  /* Makes progress without waiting. Returns nonzero if an operation has progressed. */
  int (*progress)(xlad_transport_engine* engine);

  /* Prepares memory for faster transfers; both functions are NULL if the library does not need this. */
  int (*register_memory)(xlad_transport_engine* engine, const xlad_transport_memory* memory, void** handle,
                         xlad_transport_error* error);
  void (*unregister_memory)(xlad_transport_engine* engine, void* handle);

  /* Finalizes the library when the process ends normally and all engines are closed; NULL if that is not needed. A
   * plugin must also work without this call. */
  void (*end_process)(void);
} xlad_transport_api;

/* The only function that a plugin exports. The table exists until the process ends. */
const xlad_transport_api* xlad_transport(void);
typedef const xlad_transport_api* (*xlad_transport_function)(void);

#ifdef __cplusplus
}
#endif
#endif /* XLAD_TRANSPORT_H_ */
