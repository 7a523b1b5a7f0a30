package api

import (
	"context"
	"net/http"
)

// Route is something that can be asked or changed.
type Route struct {
	Method  string
	Path    string // below /v1, in the notation of http.ServeMux
	Summary string // one line, for the OpenAPI document
	Access  Access
	Query   []Parameter
	Body    any    // a value of the type that a request has as JSON; nil: none
	Result  any    // a value of the type of the answer; nil when it is not JSON
	Type    string // of an answer that is not JSON, as text/event-stream

	serve func(*Call) error
}

// Parameter is a part of the query of a request.
type Parameter struct {
	Name, Summary string
	Many          bool // it may be there several times
}

// read is a route that answers with a value.
func read[R any](path, summary string, answer func(*Call, context.Context) (R, error), query ...Parameter) Route {
	var none R
	return Route{Method: http.MethodGet, Path: path, Summary: summary, Access: Read, Query: query, Result: none, serve: func(c *Call) error {
		result, err := answer(c, c.request.Context())
		if err != nil {
			return err
		}
		return c.answer(http.StatusOK, result)
	}}
}

// ask is a route that answers with a value, to a question in the body.
func ask[B, R any](path, summary string, answer func(*Call, context.Context, B) (R, error)) Route {
	return posted(path, summary, Read, answer)
}

// posted is a route with a body, for who has this access.
func posted[B, R any](path, summary string, access Access, answer func(*Call, context.Context, B) (R, error)) Route {
	var noBody B
	var none R
	return Route{Method: http.MethodPost, Path: path, Summary: summary, Access: access, Body: noBody, Result: none, serve: func(c *Call) error {
		var body B
		if err := c.decode(&body, access); err != nil {
			return err
		}
		result, err := answer(c, c.request.Context(), body)
		if err != nil {
			return err
		}
		return c.answer(http.StatusOK, result)
	}}
}

// stream is a route that writes until all is written, or the client goes.
func stream(path, summary, contentType string, access Access, serve func(*Call) error, query ...Parameter) Route {
	return Route{Method: http.MethodGet, Path: path, Summary: summary, Access: access, Query: query, Type: contentType, serve: serve}
}

// shows is a route that takes other access.
func (r Route) shows(what Access) Route {
	r.Access = what
	return r
}

// answers is a route of a stream whose answer is JSON.
func (r Route) answers(result any) Route {
	r.Result = result
	return r
}
