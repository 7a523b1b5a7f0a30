package image

// formats are the format numbers, where they are not 1, of maps that commands read and that generations hand on. A
// number changes with the meaning of a map's content, so that an earlier or later floodwall does not misread it. A
// format without a map, such as that of a question, has a name here too.
var formats = map[string]int{
	Flows:         3, // a state has three bits; the filter of the buckets is a global
	DynamicInfo:   5, // prefix lengths are in a map of their own, DynamicLengths
	ReplyFlows:    3, // tags have 37 bits, and of IPv6 another sum
	ReplyFilter:   3, // it has two filters, and secrets that are added to IPv6 addresses
	FloodStates:   2, // it has what is read of datagrams
	HostEnds:      2, // marks tell own addresses from broadcast addresses
	RakNetServers: 2, // the one used longest ago gives way

	Samples: 2, Samplers: 2, Traffic: 2, TrafficSamplers: 2, // a sample has its share, a CPU when it halved that
}

// readable are earlier formats that commands still read and write. In format 1 of DynamicInfo the words that say which
// addresses a set does not have are zero, which says nothing; a writer leaves them zero. Before format 3 the map ends
// after the records of the sets, and in format 3 after the host's own addresses. Before format 5 the records have the prefix lengths. In format 1 of HostEnds any mark but 0 meant the same.
var readable = map[string]int{DynamicInfo: 1, HostEnds: 1}

// Readable reports whether commands read and write a map of a format.
func Readable(name string, format int) bool {
	first, ok := readable[name]
	return format == Format(name) || ok && first <= format && format < Format(name)
}

// Question is the name of the form of questions among the formats.
const Question = "question"

// Format is the number of a map's format.
func Format(name string) int {
	if n := formats[name]; n > 0 {
		return n
	}
	return 1
}

// Formats are the numbers that are not 1.
func Formats() map[string]int { return formats }
