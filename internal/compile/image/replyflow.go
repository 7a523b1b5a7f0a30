package image

// The table of conversations: bpf/replyflow.h. TestEnums and TestStructLayouts compare them with bpf/.
const (
	ReplySlots       = 8 // REPLY_SLOTS: words of a bucket
	ReplyBucketSize  = 8 * ReplySlots
	ReplyBucketBits  = 17 // REPLY_BUCKET_BITS
	ReplyBuckets     = 1 << ReplyBucketBits
	ReplySecretsSize = 64                                                // of struct reply_secrets
	ReplyUsedSize    = ReplyBuckets / 8                                  // of the first filter, behind it
	ReplyFilterSize  = ReplySecretsSize + ReplyUsedSize + 4*ReplyBuckets // of struct reply_filter
	ReplyTagShift    = 27                                                // REPLY_TAG_SHIFT: the bits of a word from there on are the tag
	ReplyUDP         = 0x2c1b3c6d                                        // enum reply_kind
	ReplyTCP         = 0x297a2d39
	ReplyIssued      = 0x165667b1
	ReplyClientNew   = 14      // REPLY_CLIENT_NEW
	ReplyClient      = 15      // REPLY_CLIENT
	ServiceWords     = 2 << 10 // words of service_ports of bpf/replyleaving.h
	ClientWords      = 1 << 10 // of client_ports
)

// ReplyLife is how long a reply flow is remembered in each state, in units of 2^32 ns: reply_life of bpf/replyflow.h.
var ReplyLife = [16]uint64{0, 15, 15, 20432, 20432, 20432, 28, 28, 7, 42, 7, 142, 142, 42, 7, 42}

// ReplyBits are the bits of the second filter of a conversation, by its word: reply_bits() of bpf/replyflow.h.
func ReplyBits(word uint64) uint32 { return 1<<(word>>59) | 1<<(uint32(word)>>27) }
