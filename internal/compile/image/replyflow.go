// SPDX-License-Identifier: Apache-2.0

package image

// The table of reply flows: bpf/replyflow.h. TestEnums and TestStructLayouts compare these constants with bpf/.
const (
	ReplySlots       = 8 // REPLY_SLOTS: words of a bucket
	ReplyBucketSize  = 8 * ReplySlots
	ReplyBucketBits  = 17 // REPLY_BUCKET_BITS
	ReplyBuckets     = 1 << ReplyBucketBits
	ReplySecretsSize = 72                                                // size of struct reply_secrets
	ReplyUsedSize    = ReplyBuckets / 8                                  // size of the first filter, which follows the secrets
	ReplyFilterSize  = ReplySecretsSize + ReplyUsedSize + 4*ReplyBuckets // size of struct reply_filter
	ReplyTagShift    = 27                                                // REPLY_TAG_SHIFT: the tag is in the bits of a word from here up
	ReplyUDP         = 0x2c1b3c6d                                        // enum reply_kind
	ReplyTCP         = 0x297a2d39
	ReplyIssued      = 0x165667b1
	ReplyClientNew   = 14      // REPLY_CLIENT_NEW
	ReplyClient      = 15      // REPLY_CLIENT
	ServiceWords     = 2 << 10 // number of words of service_ports of bpf/replyleaving.h
	ClientWords      = 1 << 10 // number of words of client_ports
)

// ReplyLife is the time for which a reply flow is remembered, for each state, in units of 2^32 ns: reply_life of bpf/replyflow.h.
var ReplyLife = [16]uint64{0, 15, 15, 20432, 20432, 20432, 28, 20432, 7, 42, 7, 142, 142, 42, 7, 42}

// ReplyBits returns the bits of a reply flow in the second filter, by its word: reply_bits() of bpf/replyflow.h.
func ReplyBits(word uint64) uint32 { return 1<<(word>>59) | 1<<(uint32(word)>>27) }
