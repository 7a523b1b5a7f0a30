// SPDX-License-Identifier: Apache-2.0

package image

// formats has the format numbers of maps, if they differ from 1. It has maps that commands read, and maps that a generation passes to the next one. A
// number changes when the meaning of a map's content changes, so that another version of floodwall does not misread the map. Formats that belong to
// no map, such as that of a question, are also here.
var formats = map[string]int{
	Flows:         3, // a state has three bits; the filter of the buckets is a global
	DynamicInfo:   5, // prefix lengths are in a map of their own, DynamicLengths
	ReplyFlows:    4, // tags have 37 bits, those of IPv6 use another sum; a bucket has a secret for each word
	ReplyFilter:   4, // it has two filters, secrets that are added to IPv6 addresses, and two secrets of the index
	FloodStates:   2, // it has data that is read from datagrams
	HostEnds:      2, // marks distinguish own addresses from broadcast addresses
	RakNetServers: 2, // the least recently used entry is replaced

	Samples: 2, Samplers: 2, Traffic: 2, TrafficSamplers: 2, // a sample has its share, a CPU the time at which it halved its share
}

// readable has the earliest formats that commands still read and write. In format 1 of DynamicInfo, the words that exclude addresses from a set are
// zero and exclude none. A writer leaves them zero. Before format 3 the map ends after the records of the sets, and in format 3 after the host's own
// addresses. Before format 5 the records have the prefix lengths. In format 1 of HostEnds, all marks other than 0 had the same meaning.
var readable = map[string]int{DynamicInfo: 1, HostEnds: 1}

// Readable reports whether commands can read and write this format of a map.
func Readable(name string, format int) bool {
	first, ok := readable[name]
	return format == Format(name) || ok && first <= format && format < Format(name)
}

// Question is the name of the format of questions.
const Question = "question"

// Format returns the number of a map's format.
func Format(name string) int {
	if n := formats[name]; n > 0 {
		return n
	}
	return 1
}

// Formats returns the format numbers other than 1.
func Formats() map[string]int { return formats }
