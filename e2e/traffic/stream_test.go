// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
)

// pattern returns n pseudorandom bytes for a seed.
func pattern(n int, seed uint64) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	b := make([]byte, n)
	r.Read(b)
	return b
}

// readPage reads an HTTP response. The body must be page.
func readPage(r io.Reader) error {
	response, err := http.ReadResponse(bufio.NewReader(r), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, page) {
		return fmt.Errorf("status %s: %d bytes that are not the page", response.Status, len(body))
	}
	return nil
}

// sendStream writes n pseudorandom bytes for a seed.
func sendStream(w io.Writer, n int64, seed byte) error {
	_, err := io.CopyN(w, rand.NewChaCha8([32]byte{seed}), n)
	return err
}

// checkStream reads n bytes, and checks that they are the bytes that sendStream writes for the seed.
func checkStream(r io.Reader, n int64, seed byte) error {
	want := rand.NewChaCha8([32]byte{seed})
	got, wanted := make([]byte, 1<<18), make([]byte, 1<<18)
	for at := int64(0); at < n; {
		size := min(int64(len(got)), n-at)
		if _, err := io.ReadFull(r, got[:size]); err != nil {
			return fmt.Errorf("after %d bytes: %w", at, err)
		}
		want.Read(wanted[:size])
		if !bytes.Equal(got[:size], wanted[:size]) {
			return errors.New("the bytes are others than were sent")
		}
		at += size
	}
	return nil
}
