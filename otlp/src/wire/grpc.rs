//! Unary gRPC calls whose messages are bytes that are encoded already, so that a retry encodes nothing.

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::answer::{self, Outcome};
use super::{ANSWER_BYTES, Wire, text_of};

/// Sends one encoded request.
pub(super) async fn send(wire: &Wire, message: Bytes) -> Outcome {
    let mut grpc = Grpc::with_origin(wire.client.clone(), wire.endpoint.clone())
        .max_decoding_message_size(ANSWER_BYTES)
        .accept_compressed(CompressionEncoding::Gzip);
    if wire.gzip {
        grpc = grpc.send_compressed(CompressionEncoding::Gzip);
    }
    if let Err(error) = grpc.ready().await {
        return Outcome::Retry(None, text_of(&error));
    }
    let mut request = Request::new(message);
    *request.metadata_mut() = MetadataMap::from_headers(wire.headers.clone());
    let path = PathAndQuery::from_static(wire.signal.grpc_path());
    match grpc.unary(request, path, BytesCodec).await {
        Ok(response) => answer::accepted(response.into_inner()),
        Err(status) => match std::error::Error::source(&status) {
            // The request did not reach the receiver, or the response did not arrive.
            Some(cause) => Outcome::Retry(None, text_of(cause)),
            None => answer::of_grpc(&status),
        },
    }
}

/// Passes messages on as bytes, neither encoded nor decoded.
#[derive(Debug, Clone, Copy)]
pub struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
