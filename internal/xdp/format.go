package xdp

// formats are the numbers of the formats of maps that commands read and that generations hand on, where they are not 1. A
// number changes when the meaning of a map's content does: an earlier floodwall that is left, or a later one, must not take it
// for what it knows. What has no map, such as the form of a question, has a name here all the same.
var formats = map[string]int{
	Flows:       3, // a state has three bits; the filter of the buckets is a global
	DynamicInfo: 4, // it has marks of the addresses that sets may have, and some of the host's own addresses
}

// readable are the earlier formats that commands read and write as well, where there are any. In format 1 of DynamicInfo the words
// that say which addresses a set has not are zero, which says nothing, and whoever writes leaves them so. Before format 3 the map ends
// behind the records of the sets, and in format 3 behind the host's own addresses.
var readable = map[string]int{DynamicInfo: 1}

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
