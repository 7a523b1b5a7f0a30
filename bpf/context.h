/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The packet as the kernel gives it to the program. The same C is compiled for two hooks. At XDP a packet is a frame in a
 * buffer of the driver (struct xdp_md). At the ingress of tc, with AT_TC, it is a socket buffer (struct __sk_buff): the outer
 * VLAN tag is beside the frame, only a part of the frame may be linear, and the kernel may have joined several packets
 * (GRO). Devices without a link layer, such as tun, give packets that begin with the IP header. All code that differs
 * between the hooks is in this file, in explain.h and in sendback.h.
 */
#pragma once

#include "kernel.h"
#include "verifier.h"

/* Of enum tcx_action_base of linux/bpf.h. Headers of Linux before 6.6, as of Debian 12, do not have it. These are macros, because
 * those may have the names of enumerators.
 */
#define TCX_NEXT (-1) /* the next program decides, as if this one were not attached */
#define TCX_DROP 2

/* Values of tc_index, which nothing else uses. The programs of all hooks know the packets of this program by it. */
enum {
	REINJECTED = 0xf1, /* the program at the ingress of tc has queued the packet again */
	ANSWERED = 0xf2,   /* the packet is an answer of this program */
};

#ifdef AT_TC

typedef struct __sk_buff context;

#define HOOK "tcx/ingress"

enum {
	ACTION_PASS = TCX_NEXT,
	ACTION_DROP = TCX_DROP,
};

/* The length of the link layer's header: that of Ethernet, or 0. Constant from load on. */
const volatile __u32 link_header;

#define LINK_HEADER link_header

enum {
	JOINS = 1,          /* the kernel may have joined packets */
	TAG_BYTES = 4,      /* the length of a VLAN tag */
	LINEAR_MOST = 2048, /* bytes that are made linear before a frame is parsed */
	JOINED_MOST = 255,  /* further packets of a joined one that limits count */
};

#define ct_lookup bpf_skb_ct_lookup

#define load_frame(ctx, at, to, size) bpf_skb_load_bytes(ctx, at, to, size)
#define store_frame(ctx, at, from, size) bpf_skb_store_bytes(ctx, at, from, size, 0)

/* Whether the outer VLAN tag is beside the frame. */
static __always_inline bool has_tag_beside(context *ctx)
{
	return ctx->vlan_present;
}

/* The number of the VLAN in the tag beside the frame. */
static __always_inline __u32 vlan_beside(context *ctx)
{
	return ctx->vlan_tci & 0xfff;
}

/* The length of the frame in the socket buffer, without a VLAN tag beside it. */
static __always_inline __u32 frame_length(context *ctx)
{
	return ctx->len;
}

/* The length on the wire of a frame that has this length in the socket buffer. */
static __always_inline __u32 wire_length(context *ctx, __u32 length)
{
	return length + (ctx->vlan_present ? TAG_BYTES : 0);
}

/* The length on the wire of the whole frame. */
static __always_inline __u32 frame_bytes(context *ctx, void *data, void *end)
{
	return wire_length(ctx, ctx->len);
}

/* Makes a frame as long as given. Returns an error number, or 0. */
static __always_inline long set_length(context *ctx, __u32 bytes, __u32 length)
{
	return length == ctx->len ? 0 : bpf_skb_change_tail(ctx, length, 0);
}

/*
 * Makes the start of a frame linear, so that the parsers can read it. The headers of a joined packet are linear already
 * (skb_gro_reset_offset() and gro_pull_from_frag0() of net/core/gro.c). Without memory for it, the frame counts as cut short.
 */
static __always_inline void make_linear(context *ctx)
{
	__u32 linear = ctx->data_end - ctx->data, length = ctx->len;

	if (linear < length && linear < LINEAR_MOST && !ctx->gso_size)
		bpf_skb_pull_data(ctx, length < LINEAR_MOST ? length : LINEAR_MOST);
}

/* A socket buffer can always grow at its end. */
static __always_inline bool grow_in_front(context *ctx, __u32 headers, int by)
{
	return false;
}

/* The length of the payload of each joined packet but the last. */
static __always_inline __u32 segment_bytes(context *ctx)
{
	return ctx->gso_size;
}

/* The protocol of a packet without a link layer, an EtherType. */
static __always_inline __be16 bare_protocol(context *ctx)
{
	return ctx->protocol;
}

/*
 * How many more packets the kernel has joined to this one. A guest or another untrusted source does not say how many packets it has joined (gso_segs is
 * 0, virtio_net_hdr_to_skb() of include/linux/virtio_net.h), so they are counted by the length of their payload.
 */
static __always_inline __u32 joined_packets(context *ctx, __u32 payload)
{
	__u32 size = ctx->gso_size, segments = ctx->gso_segs;

	if (!size)
		return 0;
	if (!segments)
		segments = (payload + size - 1) / size;
	return segments ? segments - 1 : 0;
}

#else

typedef struct xdp_md context;

#define HOOK "xdp"

enum {
	ACTION_PASS = XDP_PASS,
	ACTION_DROP = XDP_DROP,
};

enum {
	JOINS = 0,
	JOINED_MOST = 0,
};

#define LINK_HEADER sizeof(struct ethernet)

#define ct_lookup bpf_xdp_ct_lookup

#define load_frame(ctx, at, to, size) bpf_xdp_load_bytes(ctx, at, to, size)
#define store_frame(ctx, at, from, size) bpf_xdp_store_bytes(ctx, at, from, size)

static __always_inline bool has_tag_beside(context *ctx)
{
	return false;
}

static __always_inline __u32 vlan_beside(context *ctx)
{
	return 0;
}

/* The protocol of a packet without a link layer, an EtherType: XDP has no such packets. */
static __always_inline __be16 bare_protocol(context *ctx)
{
	return 0;
}

static __always_inline __u32 joined_packets(context *ctx, __u32 payload)
{
	return 0;
}

static __always_inline __u32 segment_bytes(context *ctx)
{
	return 0;
}

/* The length of the frame, with all buffers. */
static __always_inline __u32 frame_length(context *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* The length on the wire of a frame that has this length in the buffer. */
static __always_inline __u32 wire_length(context *ctx, __u32 length)
{
	return length;
}

/* The length on the wire of the whole frame, which is in one buffer. */
static __always_inline __u32 frame_bytes(context *ctx, void *data, void *end)
{
	return end - data;
}

/* At XDP the parsers read the first buffer, which has all headers. */
static __always_inline void make_linear(context *ctx)
{
}

/* Makes a frame of `bytes` bytes as long as given. Returns an error number, or 0. */
static __always_inline long set_length(context *ctx, __u32 bytes, __u32 length)
{
	return length == bytes ? 0 : bpf_xdp_adjust_tail(ctx, length - bytes);
}

enum {
	MOST_HEADERS = 128, /* bytes of Ethernet, VLAN tags, IP and UDP */
	MOST_IN_FRONT =
		192, /* bytes by which a frame may grow in front: all drivers leave 256 bytes there (XDP_PACKET_HEADROOM), and the kernel takes some of them */
};

/* Makes a frame longer by `by` bytes: its headers, of the given length, move to the front. Returns whether that was possible. */
static __always_inline bool grow_in_front(context *ctx, __u32 headers, int by)
{
	__u8 copy[MOST_HEADERS];

	if (by <= 0 || by > MOST_IN_FRONT || !headers || headers > MOST_HEADERS)
		return false;
	headers = known_length(headers, MOST_HEADERS);
	__builtin_memset(copy, 0, sizeof(copy)); /* before Linux 6.3 all that may be read has to be written first */
	if (load_frame(ctx, 0, copy, headers) || bpf_xdp_adjust_head(ctx, -by))
		return false;
	return !store_frame(ctx, 0, copy, headers);
}

#endif
