package facts

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Sysctl reads the numbers of a variable under /proc/sys/net, which is that of the thread's network namespace, or is
// what is usual where the kernel does not show it.
func Sysctl(name string, usual ...int) []int {
	text, err := os.ReadFile(filepath.Join("/proc/sys/net", name))
	if err != nil {
		return usual
	}
	var numbers []int
	for _, word := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return usual
		}
		numbers = append(numbers, n)
	}
	if len(numbers) < len(usual) {
		return usual
	}
	return numbers
}
