package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

type object = map[string]any

type server struct {
	base string
	http *http.Client
}

const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io"

// do sends one request and returns the status code and the decoded answer.
func (s *server) do(method, path, accept, contentType string, body []byte) (int, object, error) {
	request, err := http.NewRequest(method, strings.TrimSuffix(s.base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", accept)
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	var answer object
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&answer); err != nil {
		return response.StatusCode, nil, fmt.Errorf("%s %s: %d: %w: %s", method, path, response.StatusCode, err, data)
	}
	return response.StatusCode, answer, nil
}

// get is do for reads that must succeed.
func (s *server) get(path, accept string) (object, error) {
	code, answer, err := s.do(http.MethodGet, path, accept, "", nil)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("GET %s: %d: %v", path, code, answer["message"])
	}
	return answer, err
}
