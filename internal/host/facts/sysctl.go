// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Sysctl returns the numbers in a file under /proc/sys/net, in the thread's network namespace. It returns the values in usual if the file cannot be
// read.
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
