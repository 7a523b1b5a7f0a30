package xdp

// formats are the numbers of the formats of maps that commands read and that generations hand on, where they are not 1. A
// number changes when the meaning of a map's content does: an earlier floodwall that is left, or a later one, must not take it
// for what it knows. What has no map, such as the form of a question, has a name here all the same.
var formats = map[string]int{
	Flows:       2, // a state has three bits
	DynamicInfo: 2, // it says which addresses a set has not
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
