// SPDX-License-Identifier: Apache-2.0

package image

// Constants of the tables of answered names and of flooded zones: bpf/zone.h. TestStructLayouts and TestEnums compare them with bpf/.
const (
	AnsweredSlots      = 8 // ANSWERED_SLOTS: names per bucket
	AnsweredBucketSize = 8 * AnsweredSlots
	AnsweredBuckets    = 1 << 16 // 4 MB, 524,288 names
	AnsweredTagShift   = 17      // ANSWERED_TAG_SHIFT: the tag is in the bits of a word from here up
	Zones              = 1024    // ZONES
	ZoneNameSize       = 64      // ZONE_NAME: the largest number of bytes of a zone's name that are stored
	ZoneSize           = ZoneNameAt + ZoneNameSize
	ZoneUntilAt        = 8                  // offset in struct zone of the time until which the zone is flooded
	ZoneNameAt         = 24                 // offset in struct zone of the zone's name
	ZoneKeySize        = 16                 // size of the key of the hashes, at the start of struct zone_times
	ZoneTimesSize      = ZoneKeySize + 8*32 // ZONE_DEPTHS
)
