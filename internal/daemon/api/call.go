package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// How much a client may send, and how long it may take to receive.
const (
	maxBody     = 4 << 20  // bytes, of what changes something
	maxQuestion = 64 << 10 // of what anybody may ask
	answerTime  = 20 * time.Second
)

// Call is a request that is being answered.
type Call struct {
	*Server
	limits
	from    Origin
	by      Peer
	request *http.Request
	out     http.ResponseWriter
	started bool // a part of the answer was written
}

// noBody refuses a request that announces a body. net/http would wait for the body before it sends the answer, and a client that
// does not send it could keep a stream, and its slot, without an end.
func (c *Call) noBody() error {
	if c.request.ContentLength == 0 {
		return nil
	}
	http.NewResponseController(c.out).EnableFullDuplex() // answer without waiting for the body
	c.out.Header().Set("Connection", "close")
	return &Error{http.StatusBadRequest, "the request has a body, which " + c.request.URL.Path + " does not take", "send none"}
}

// decode reads the body of a route with this access as JSON. A key that is not known is an error.
func (c *Call) decode(into any, access Access) error {
	most := int64(maxBody)
	if access != Change {
		most = maxQuestion
	}
	kind, _, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" { // a web page cannot send this elsewhere without being asked first
		return &Error{http.StatusUnsupportedMediaType, "the body is not said to be JSON", "send the header Content-Type: application/json"}
	}
	text, err := io.ReadAll(http.MaxBytesReader(c.out, c.request.Body, most))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", most), "send it in parts"}
	}
	if err != nil {
		return &Error{http.StatusBadRequest, "the body ends too soon: " + err.Error(), ""}
	}
	http.NewResponseController(c.out).SetReadDeadline(time.Time{}) // it was for the body, which is whole; the answer may take longer
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &Error{http.StatusBadRequest, "the body cannot be read: " + err.Error(), "docs/openapi.json, which GET /v1/openapi.json returns, says what it has"}
	}
	if _, err := d.Token(); err != io.EOF {
		return &Error{http.StatusBadRequest, "the body has more than one value", "send one"}
	}
	return nil
}

// answer writes a value as JSON, as commands with --json print it.
func (c *Call) answer(status int, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	c.out.Header().Set("Content-Type", "application/json")
	return c.write(status, text.Bytes())
}

// write writes a whole answer. A client that does not take it in time loses its connection.
func (c *Call) write(status int, text []byte) error {
	c.started = true
	http.NewResponseController(c.out).SetWriteDeadline(time.Now().Add(answerTime))
	c.out.Header().Set("Content-Length", fmt.Sprint(len(text)))
	c.out.WriteHeader(status)
	c.out.Write(text) // who has gone needs no answer
	return nil
}

// fail answers with an error, unless an answer has started: then the connection ends, so that the client sees that it is not whole. It
// answers also when the context of the request has ended: the client may be there, and net/http would answer 200 for it.
func (c *Call) fail(err error) {
	ended := c.request.Context().Err() != nil // the client has gone, has not sent the body, or the daemon ends
	if c.started && ended {
		return
	}
	if c.started {
		panic(http.ErrAbortHandler)
	}
	status := statusOf(err)
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		c.out.Header().Set("Retry-After", "1")
	}
	if status == http.StatusInternalServerError && !ended {
		c.Warn(c.request.URL.Path + ": " + err.Error())
	}
	c.answer(status, failure(err))
}
