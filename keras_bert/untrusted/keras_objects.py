"""The objects that the config of an untrusted `.keras` file may name.

Each kind has the modules and the classes that `keras_bert.save` and Keras write for it. The lists
leave out objects that run code, open files or create data of a size that the file chooses:
`Lambda`, `TFSMLayer`, `HubLayer`, Keras' layers with a vocabulary, `Normalization`, `Arange`,
`Repeat`, `Unstack`, and operations with functions.
"""

from typing import NamedTuple


class Kind(NamedTuple):
    """Modules and classes of one kind of objects."""

    modules: frozenset[str]
    classes: frozenset[str]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _kind(modules: str, classes: str) -> Kind:
    return Kind(_names(modules), _names(classes))


# Registered under "keras_bert>" and the class name.
OWN_PACKAGE = "keras_bert"
OWN_LAYERS = _kind(
    OWN_PACKAGE,
    """
    Dropout Embeddings SelfAttention TransformerBlock Pooler MaskedLMHead TaskOutput SentencePooling
    WithoutDropout WeightedSum MergeChoices SplitChoices GatherTexts UnitLength Preprocessor
    BertEncoder
    """,
)
OWN_FUNCTIONAL = _kind(OWN_PACKAGE, "TokenModel")
FUNCTIONAL = _kind("keras keras.models keras.src.models.functional", "Functional Model")
SEQUENTIAL = _kind("keras keras.models keras.src.models.sequential", "Sequential")

KERAS_LAYERS = _kind(
    "keras.layers",
    """
    InputLayer Dense EinsumDense Embedding ReversibleEmbedding Identity Activation Masking Wrapper
    ELU LeakyReLU PReLU ReLU Softmax
    Attention AdditiveAttention MultiHeadAttention GroupQueryAttention
    BatchNormalization GroupNormalization LayerNormalization RMSNormalization UnitNormalization
    Rescaling
    Dropout AlphaDropout GaussianDropout GaussianNoise SpatialDropout1D SpatialDropout2D
    SpatialDropout3D ActivityRegularization
    Add Average Concatenate Dot Maximum Minimum Multiply Subtract
    Flatten Permute Reshape Cropping1D Cropping2D Cropping3D
    Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose DepthwiseConv1D
    DepthwiseConv2D SeparableConv1D SeparableConv2D
    AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D
    GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D
    GlobalMaxPooling2D GlobalMaxPooling3D
    Bidirectional TimeDistributed RNN LSTM LSTMCell GRU GRUCell SimpleRNN SimpleRNNCell
    StackedRNNCells
    """,
)
# Layers that may be an argument `activation`. They hold no other layers.
ACTIVATION_LAYERS = _kind("keras.layers", "ELU LeakyReLU PReLU ReLU Softmax")
PREPROCESSORS = _kind(OWN_PACKAGE, "Preprocessor")
CELLS = _kind("keras.layers", "LSTMCell GRUCell SimpleRNNCell StackedRNNCells")
OPERATIONS = _kind(
    "keras.src.ops.numpy keras.src.ops.nn keras.src.ops.core keras.src.ops.math",
    """
    Absolute Add All Amax Amin Any Arccos Arccosh Arcsin Arcsinh Arctan Arctan2 Arctanh Argmax
    Argmin Average Ceil Clip Concatenate Copy Cos Cosh CountNonzero Cumsum Divide DivideNoNan
    Dot Einsum Equal Exp ExpandDims Expm1 Flip Floor FloorDivide GetItem Greater GreaterEqual
    Isfinite Isinf Isnan Less LessEqual Log Log10 Log1p Log2 Logaddexp LogicalAnd LogicalNot
    LogicalOr LogicalXor Matmul Max Maximum Mean Min Minimum Mod Moveaxis Multiply NanToNum
    Negative NotEqual OnesLike Power Prod Ravel Reciprocal Reshape Round Sign Sin Sinh Sqrt
    Square Squeeze Stack Std Subtract Sum Swapaxes Take TakeAlongAxis Tan Tanh Tensordot
    Transpose TrueDivide Var Where ZerosLike Celu Elu Gelu Glu HardSigmoid HardSilu HardTanh
    LayerNorm LeakyRelu LogSigmoid LogSoftmax Normalize Relu Relu6 RMSNorm Selu Sigmoid Silu
    Softmax Softplus Softsign TanhShrink Cast StopGradient Erf Logsumexp Rsqrt TopK
    """,
)
INITIALIZERS = _kind(
    "keras.initializers",
    """
    Constant Zeros Ones Identity Orthogonal RandomNormal RandomUniform TruncatedNormal
    VarianceScaling GlorotNormal GlorotUniform HeNormal HeUniform LecunNormal LecunUniform
    """,
)
REGULARIZERS = _kind("keras.regularizers", "L1 L2 L1L2 OrthogonalRegularizer")
CONSTRAINTS = _kind("keras.constraints", "MaxNorm MinMaxNorm NonNeg UnitNorm")
DTYPE_POLICIES = _kind(
    "keras keras.dtype_policies",
    "DTypePolicy DTypePolicyMap QuantizedDTypePolicy QuantizedFloat8DTypePolicy Int4DTypePolicy",
)
# Not GPTQConfig and AWQConfig, which hold a data set and a tokenizer.
QUANTIZATIONS = _kind(
    "keras.quantizers",
    "Int4QuantizationConfig Int8QuantizationConfig Float8QuantizationConfig AbsMaxQuantizer",
)
MODELS = (OWN_FUNCTIONAL, FUNCTIONAL, SEQUENTIAL)
LAYERS = (*MODELS, OWN_LAYERS, KERAS_LAYERS)

# Modules of the functions below. Older versions of Keras wrote "builtins".
ACTIVATION_MODULES = _names(
    "builtins keras.activations keras.ops keras.src.activations.activations"
)
# Names, as strings of a config or as functions.
ACTIVATIONS = _names(
    """
    celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu
    linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus
    softsign sparse_plus sparse_sigmoid squareplus swish tanh tanh_shrink threshold
    """
)
INITIALIZER_NAMES = INITIALIZERS.classes | _names(
    """
    zeros zero ones one identity orthogonal random_normal normal random_uniform uniform
    truncated_normal variance_scaling glorot_normal glorot_uniform he_normal he_uniform
    lecun_normal lecun_uniform
    """
)
REGULARIZER_NAMES = _names("l1 l2 l1_l2 l1l2 orthogonal_regularizer")
CONSTRAINT_NAMES = _names("max_norm min_max_norm non_neg unit_norm")

# Dtypes of arrays and tensors in a config. Strings and objects are not among them.
DTYPES = _names(
    """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
    """
)
