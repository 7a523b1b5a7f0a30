// SPDX-License-Identifier: Apache-2.0

// This file reads keys from files that other users cannot read.

package safefile

import (
	"errors"
	"fmt"
	"strings"
)

// The largest sizes, in bytes, of a secret of one line and of a file of several lines.
const (
	mostLine  = 4096
	mostBytes = 64 << 10
)

// Read returns the secret in a file, without white space around it. The file must belong to root or to the user of this process. Its group and other
// users must have no access. An error names the file.
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
