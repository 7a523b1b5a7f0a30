package image

// Names that were answered, and flooded zones: bpf/zone.h. TestStructLayouts and TestEnums compare them.
const (
	AnsweredSlots      = 8 // ANSWERED_SLOTS: names of a bucket
	AnsweredBucketSize = 8 * AnsweredSlots
	AnsweredBuckets    = 1 << 16 // 4 MB, 524,288 names
	AnsweredTagShift   = 17      // ANSWERED_TAG_SHIFT: the bits of a word from there on are the tag
	Zones              = 1024    // ZONES
	ZoneNameSize       = 64      // ZONE_NAME: bytes of a zone's name that are kept
	ZoneSize           = ZoneNameAt + ZoneNameSize
	ZoneUntilAt        = 8                  // offsets in struct zone: until when it is flooded,
	ZoneNameAt         = 24                 // and its name
	ZoneKeySize        = 16                 // of the key of the hashes, at the start of struct zone_times
	ZoneTimesSize      = ZoneKeySize + 8*32 // ZONE_DEPTHS
)
