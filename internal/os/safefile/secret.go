// This file reads keys from files that nobody else may read.

package safefile

import (
	"errors"
	"fmt"
	"strings"
)

// How long a secret of one line, and a file of several lines, may be, in bytes.
const (
	mostLine  = 4096
	mostBytes = 64 << 10
)

// Read reads the secret that a file holds, without blanks around it. The file must be the superuser's or of who runs this, and neither its
// group nor others may read it. An error names the file.
func Read(file string) (string, error) {
	text, err := Private().Read(file)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	switch {
	case key == "":
		return "", errors.New(file + " is empty")
	case len(text) > mostLine || strings.ContainsAny(key, "\r\n\x00"):
		return "", fmt.Errorf("%s is not one line of up to %d bytes", file, mostLine)
	}
	return key, nil
}
